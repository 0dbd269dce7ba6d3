//! The numbers that Service ports, sets and endpoints have in maps that others take the place of. With
//! the same numbers, what is remembered of clients and their connections goes on meaning the same.

use std::collections::{BTreeMap, HashMap, HashSet};

use proxy_model::ServicePortKey;

use super::{super::programmed::Programmed, ProgrammedService, sets::Policy};

/// Numbers that are to be given out again, to whom they belong. Each is given out once.
#[derive(Debug, Default)]
pub struct Remembered {
    services: BTreeMap<ServicePortKey, ProgrammedService>,
    /// By the number of the Service port.
    sets: HashMap<(u32, Policy), u32>,
    all: HashSet<u32>,
}

impl Remembered {
    /// Those in `programmed`.
    pub fn of(programmed: Programmed) -> Self {
        let all = programmed.numbers();
        let mut sets = HashMap::new();
        let services = programmed.services.into_iter().map(|(key, service)| {
            for policy in super::POLICIES {
                if let Some(set) = policy.held(&service) {
                    sets.insert((service.number, policy), set.number);
                }
            }
            let numbers = ProgrammedService {
                number: service.number,
                endpoints: service.endpoints,
                ..ProgrammedService::default()
            };
            (key, numbers)
        });
        Self {
            services: services.collect(),
            sets,
            all,
        }
    }

    /// Every number, whether or not it was given out.
    pub fn all(&self) -> impl Iterator<Item = u32> {
        self.all.iter().copied()
    }

    /// A Service port with the numbers of itself and its endpoints, but without sets.
    pub fn service(&mut self, key: &ServicePortKey) -> Option<ProgrammedService> {
        self.services.remove(key)
    }

    /// The number of a set of the Service port with this number.
    pub fn set(&mut self, service: u32, policy: Policy) -> Option<u32> {
        self.sets.remove(&(service, policy))
    }
}
