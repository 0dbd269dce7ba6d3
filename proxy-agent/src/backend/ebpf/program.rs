//! Turns desired Service ports into writes, in an order in which programs never see a Service
//! torn: what is pointed to is written before what points to it, and removed after it.
//!
//! ```text
//! upsert:  SERVICES, ENDPOINTS, SLOTS, MEMBERS, SETS   (what is new)
//!          FRONTENDS                                   (new and changed)
//!          MEMBERS, SLOTS, SETS, ENDPOINTS             (what is gone)
//! settle:  FRONTENDS                                   (what no Service of the sync took over)
//! ```
//!
//! Adding or removing one endpoint takes the same few writes, however large the set is.

use std::{collections::HashMap, net::SocketAddr};

use proxy_common::{
    endpoint::{EndpointKey, MemberKey, MemberValue, SetKey, SetValue, SlotKey, SlotValue},
    frontend::{FrontendKey, FrontendValue},
    service::ServiceKey,
};
use proxy_model::{Endpoint, ServicePortKey, ServiceState};

use super::{
    adopt,
    capacity::{self, Capacity},
    encode,
    entry::{Entry, Key, MapError, ServiceMaps},
    numbers::Numbers,
    programmed::{Programmed, ProgrammedService, ProgrammedSet},
};

/// Writes desired Service ports to the maps.
#[derive(Debug)]
pub struct Programmer<M> {
    maps: M,
    programmed: Programmed,
    numbers: Numbers,
    capacity: Capacity,
    /// Frontends that upserts gave up, with the Service that held them: removed by `settle`,
    /// because another Service's upsert may take one over.
    given_up: Vec<(u32, FrontendKey)>,
    writes: usize,
}

/// Why a Service port was not programmed.
#[derive(Debug)]
pub enum ProgramError {
    /// Nothing was written for it; the text says why and what to do.
    Refused(String),
    /// The kernel refused a write that should have succeeded: what the maps hold is no longer
    /// known and must be read back.
    Map(MapError),
}

impl From<MapError> for ProgramError {
    fn from(error: MapError) -> Self {
        Self::Map(error)
    }
}

/// Which of a Service port's two sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Policy {
    Cluster,
    Local,
}

const POLICIES: [Policy; 2] = [Policy::Cluster, Policy::Local];

impl<M: ServiceMaps> Programmer<M> {
    /// Starts with maps that are taken to be empty; see [`Self::adopt`].
    pub fn new(maps: M, capacity: Capacity) -> Self {
        Self {
            maps,
            programmed: Programmed::default(),
            numbers: Numbers::default(),
            capacity,
            given_up: Vec::new(),
            writes: 0,
        }
    }

    /// Reads back what the maps hold, makes it consistent, and continues from there.
    pub fn adopt(&mut self) -> Result<(), MapError> {
        let adopted = adopt::adopt(&self.maps.entries()?);
        let reserved = self.maps.reserved_numbers()?;
        for entry in &adopted.puts {
            self.maps.put(entry)?;
        }
        for key in &adopted.removals {
            self.maps.remove(key)?;
        }
        self.writes += adopted.puts.len() + adopted.removals.len();
        self.numbers = Numbers::resume(reserved, adopted.programmed.numbers());
        self.programmed = adopted.programmed;
        self.given_up.clear();
        Ok(())
    }

    /// What the maps hold.
    pub fn programmed(&self) -> &Programmed {
        &self.programmed
    }

    /// The maps.
    pub fn maps(&self) -> &M {
        &self.maps
    }

    /// Writes since the last call.
    pub fn take_writes(&mut self) -> usize {
        std::mem::take(&mut self.writes)
    }

    /// Makes the maps lead to what `state` says.
    pub fn upsert(
        &mut self,
        key: &ServicePortKey,
        state: &ServiceState,
    ) -> Result<(), ProgramError> {
        let Some(protocol) = encode::protocol_number(key.protocol) else {
            return Err(ProgramError::Refused(
                "the socket hooks never see SCTP: no backend of this version serves it".into(),
            ));
        };
        let frontends: Vec<FrontendKey> = state
            .frontends
            .iter()
            .map(|frontend| encode::frontend_key(frontend, protocol))
            .collect();
        capacity::check(&self.programmed, &self.capacity, key, state, &frontends)
            .map_err(ProgramError::Refused)?;

        // Taken out while it changes; put back whatever happens, so that an error loses nothing.
        let mut service = match self.programmed.services.remove(key) {
            Some(service) => service,
            None => self.begin(key)?,
        };
        let result = self.bring_to(&mut service, state, frontends);
        self.programmed.services.insert(key.clone(), service);
        Ok(result?)
    }

    /// Introduces a Service port that the maps do not know.
    fn begin(&mut self, key: &ServicePortKey) -> Result<ProgrammedService, ProgramError> {
        let number = self.number()?;
        let Some(value) = encode::service_value(number, key) else {
            self.numbers.release(number);
            return Err(ProgramError::Refused(
                "a name in it is longer than the 63 bytes that Kubernetes allows".into(),
            ));
        };
        self.put(Entry::Service(ServiceKey { service: number }, value), true)?;
        Ok(ProgrammedService {
            number,
            ..ProgrammedService::default()
        })
    }

    fn bring_to(
        &mut self,
        service: &mut ProgrammedService,
        state: &ServiceState,
        frontends: Vec<FrontendKey>,
    ) -> Result<(), MapError> {
        for policy in POLICIES {
            if let Some(wanted) = policy.wanted(state) {
                self.add_endpoints(service, policy, wanted)?;
            }
        }
        self.write_frontends(service, state, frontends)?;
        for policy in POLICIES {
            self.remove_endpoints(service, policy, policy.wanted(state))?;
        }
        self.drop_unused_endpoints(service)
    }

    /// Removes a Service port and all that belongs to it.
    pub fn remove(&mut self, key: &ServicePortKey) -> Result<(), MapError> {
        let Some(mut service) = self.programmed.services.remove(key) else {
            return Ok(());
        };
        let result = self.take_down(&mut service);
        if result.is_err() {
            self.programmed.services.insert(key.clone(), service);
        }
        result
    }

    fn take_down(&mut self, service: &mut ProgrammedService) -> Result<(), MapError> {
        for frontend in std::mem::take(&mut service.frontends) {
            self.remove_frontend(service.number, &frontend)?;
        }
        for policy in POLICIES {
            self.remove_endpoints(service, policy, None)?;
        }
        self.drop_unused_endpoints(service)?;
        self.delete(Key::Service(ServiceKey {
            service: service.number,
        }))?;
        self.numbers.release(service.number);
        Ok(())
    }

    fn add_endpoints(
        &mut self,
        service: &mut ProgrammedService,
        policy: Policy,
        wanted: &[Endpoint],
    ) -> Result<(), MapError> {
        let mut set = if let Some(set) = policy.programmed(service).take() {
            set
        } else {
            let set = ProgrammedSet::new(self.number()?);
            let (key, value) = (
                SetKey { set: set.number },
                SetValue {
                    set: set.number,
                    count: 0,
                },
            );
            self.put(Entry::Set(key, value), true)?;
            set
        };
        let result = self.extend(service, &mut set, wanted);
        *policy.programmed(service) = Some(set);
        result
    }

    /// Adds what is missing, and only then raises the count: programs see all of it at once.
    fn extend(
        &mut self,
        service: &mut ProgrammedService,
        set: &mut ProgrammedSet,
        wanted: &[Endpoint],
    ) -> Result<(), MapError> {
        let (before, number) = (set.count(), set.number);
        for Endpoint { address } in wanted {
            if set.index.contains_key(address) {
                continue;
            }
            let endpoint = self.endpoint(service, *address)?;
            let index = set.count();
            self.put(
                Entry::Slot(
                    SlotKey { set: number, index },
                    SlotValue {
                        set: number,
                        endpoint,
                    },
                ),
                true,
            )?;
            self.put(
                Entry::Member(
                    MemberKey {
                        set: number,
                        endpoint,
                    },
                    MemberValue { index },
                ),
                true,
            )?;
            set.push(*address);
        }
        if set.count() != before {
            let value = SetValue {
                set: number,
                count: set.count(),
            };
            self.put(Entry::Set(SetKey { set: number }, value), false)?;
        }
        Ok(())
    }

    fn endpoint(
        &mut self,
        service: &mut ProgrammedService,
        address: SocketAddr,
    ) -> Result<u32, MapError> {
        if let Some(endpoint) = service.endpoints.get(&address) {
            return Ok(*endpoint);
        }
        let endpoint = self.number()?;
        let value = encode::endpoint_value(endpoint, service.number, address);
        self.put(Entry::Endpoint(EndpointKey { endpoint }, value), true)?;
        service.endpoints.insert(address, endpoint);
        Ok(endpoint)
    }

    fn write_frontends(
        &mut self,
        service: &mut ProgrammedService,
        state: &ServiceState,
        wanted: Vec<FrontendKey>,
    ) -> Result<(), MapError> {
        let set_number = |set: &Option<ProgrammedSet>, used: bool| {
            set.as_ref().filter(|_| used).map_or(0, |set| set.number)
        };
        let gone: Vec<FrontendKey> = service
            .frontends
            .iter()
            .filter(|key| !wanted.contains(key) && self.holds(service.number, key))
            .copied()
            .collect();
        // Those that are given up still lead to the right endpoints until they are removed.
        for key in wanted.iter().chain(&gone) {
            let value = FrontendValue {
                key_check: key.check(),
                service: service.number,
                cluster_set: set_number(&service.cluster, state.cluster_endpoints.is_some()),
                local_set: set_number(&service.local, state.local_endpoints.is_some()),
                flags: encode::frontend_flags(state),
            };
            let before = self.programmed.frontends.get(key);
            if before != Some(&value) {
                let added = before.is_none();
                self.put(Entry::Frontend(*key, value), added)?;
                self.programmed.frontends.insert(*key, value);
            }
        }
        self.given_up
            .extend(gone.into_iter().map(|key| (service.number, key)));
        service.frontends = wanted;
        Ok(())
    }

    /// Removes the frontends that upserts gave up and nobody took over. To be called after the
    /// last upsert of a sync and before the first removal.
    pub fn settle(&mut self) -> Result<(), MapError> {
        for (service, key) in std::mem::take(&mut self.given_up) {
            self.remove_frontend(service, &key)?;
        }
        Ok(())
    }

    fn holds(&self, service: u32, key: &FrontendKey) -> bool {
        self.programmed
            .frontends
            .get(key)
            .is_some_and(|value| value.service == service)
    }

    /// Removes a frontend unless another Service has taken it over.
    fn remove_frontend(&mut self, service: u32, key: &FrontendKey) -> Result<(), MapError> {
        if self.holds(service, key) {
            self.delete(Key::Frontend(*key))?;
            self.programmed.frontends.remove(key);
        }
        Ok(())
    }

    /// Removes the endpoints that are not wanted; the set too, if no frontend uses it any more.
    fn remove_endpoints(
        &mut self,
        service: &mut ProgrammedService,
        policy: Policy,
        wanted: Option<&[Endpoint]>,
    ) -> Result<(), MapError> {
        let Some(mut set) = policy.programmed(service).take() else {
            return Ok(());
        };
        let result = match wanted {
            Some(wanted) => self.shrink(service, &mut set, wanted),
            None => self.drop_set(service, &set),
        };
        if wanted.is_some() || result.is_err() {
            *policy.programmed(service) = Some(set);
        }
        result
    }

    fn shrink(
        &mut self,
        service: &ProgrammedService,
        set: &mut ProgrammedSet,
        wanted: &[Endpoint],
    ) -> Result<(), MapError> {
        // Both lists are usually equal but for one entry; `wanted` is ordered and unique.
        let gone: Vec<SocketAddr> = set
            .slots
            .iter()
            .filter(|at| wanted.binary_search(&Endpoint { address: **at }).is_err())
            .copied()
            .collect();
        for address in gone {
            self.remove_from_set(service, set, address)?;
        }
        Ok(())
    }

    /// Removes one endpoint in O(1): the last slot moves into its place.
    fn remove_from_set(
        &mut self,
        service: &ProgrammedService,
        set: &mut ProgrammedSet,
        address: SocketAddr,
    ) -> Result<(), MapError> {
        let number = set.number;
        let (index, last_index) = (set.index[&address], set.count() - 1);
        self.delete(Key::Member(MemberKey {
            set: number,
            endpoint: service.endpoints[&address],
        }))?;
        if index != last_index {
            let last = set.slots[last_index as usize];
            let endpoint = service.endpoints[&last];
            self.put(
                Entry::Slot(
                    SlotKey { set: number, index },
                    SlotValue {
                        set: number,
                        endpoint,
                    },
                ),
                false,
            )?;
            self.put(
                Entry::Member(
                    MemberKey {
                        set: number,
                        endpoint,
                    },
                    MemberValue { index },
                ),
                false,
            )?;
            set.index.insert(last, index);
        }
        let value = SetValue {
            set: number,
            count: last_index,
        };
        self.put(Entry::Set(SetKey { set: number }, value), false)?;
        self.delete(Key::Slot(SlotKey {
            set: number,
            index: last_index,
        }))?;
        set.slots.swap_remove(index as usize);
        set.index.remove(&address);
        Ok(())
    }

    fn drop_set(
        &mut self,
        service: &ProgrammedService,
        set: &ProgrammedSet,
    ) -> Result<(), MapError> {
        let number = set.number;
        self.delete(Key::Set(SetKey { set: number }))?;
        for (address, index) in &set.index {
            let endpoint = service.endpoints[address];
            self.delete(Key::Member(MemberKey {
                set: number,
                endpoint,
            }))?;
            self.delete(Key::Slot(SlotKey {
                set: number,
                index: *index,
            }))?;
        }
        self.numbers.release(number);
        Ok(())
    }

    fn drop_unused_endpoints(&mut self, service: &mut ProgrammedService) -> Result<(), MapError> {
        let unused: HashMap<SocketAddr, u32> = service
            .endpoints
            .iter()
            .filter(|(address, _)| !service.sets().any(|set| set.index.contains_key(address)))
            .map(|(address, endpoint)| (*address, *endpoint))
            .collect();
        for (address, endpoint) in unused {
            self.delete(Key::Endpoint(EndpointKey { endpoint }))?;
            service.endpoints.remove(&address);
            self.numbers.release(endpoint);
        }
        Ok(())
    }

    fn number(&mut self) -> Result<u32, MapError> {
        if let Some(end) = self.numbers.block_to_reserve() {
            self.maps.reserve_numbers(end)?;
            self.numbers.reserved(end);
        }
        Ok(self.numbers.take())
    }

    fn put(&mut self, entry: Entry, added: bool) -> Result<(), MapError> {
        self.maps.put(&entry)?;
        self.writes += 1;
        if added {
            self.programmed.note(&entry.key(), true);
        }
        Ok(())
    }

    fn delete(&mut self, key: Key) -> Result<(), MapError> {
        self.maps.remove(&key)?;
        self.writes += 1;
        self.programmed.note(&key, false);
        Ok(())
    }
}

impl Policy {
    fn wanted(self, state: &ServiceState) -> Option<&[Endpoint]> {
        match self {
            Self::Cluster => state.cluster_endpoints.as_deref(),
            Self::Local => state.local_endpoints.as_deref(),
        }
    }

    fn programmed(self, service: &mut ProgrammedService) -> &mut Option<ProgrammedSet> {
        match self {
            Self::Cluster => &mut service.cluster,
            Self::Local => &mut service.local,
        }
    }
}
