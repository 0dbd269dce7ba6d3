//! The two sets of a Service port. Adding or removing one endpoint is O(1) writes.

use std::net::SocketAddr;

use proxy_common::endpoint::{MemberKey, MemberValue, SetKey, SetValue, SlotKey};
use proxy_model::{Endpoint, ServiceState};

use super::{
    super::{
        encode,
        entry::{Entry, Key, MapError, ServiceMaps},
        programmed::{ProgrammedService, ProgrammedSet},
    },
    Programmer,
};

/// Which of a Service port's two sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    Cluster,
    Local,
}

/// Both.
pub const POLICIES: [Policy; 2] = [Policy::Cluster, Policy::Local];

impl Policy {
    /// The endpoints the set shall have; `None` when the Service does not use the set.
    pub fn wanted(self, state: &ServiceState) -> Option<&[Endpoint]> {
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

impl<M: ServiceMaps> Programmer<M> {
    /// Makes sure that a set holds all wanted endpoints.
    pub(super) fn add_endpoints(
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
                    encode::slot_value(number, endpoint, *address),
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

    /// The endpoint's number: the same in both sets of its Service port.
    fn endpoint(
        &mut self,
        service: &mut ProgrammedService,
        address: SocketAddr,
    ) -> Result<u32, MapError> {
        if let Some(endpoint) = service.endpoints.get(&address) {
            return Ok(*endpoint);
        }
        let endpoint = self.number()?;
        service.endpoints.insert(address, endpoint);
        Ok(endpoint)
    }

    /// Removes the endpoints that are not wanted; the set too, if no frontend uses it any more.
    pub(super) fn remove_endpoints(
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
                    encode::slot_value(number, endpoint, last),
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

    /// Gives back the numbers of endpoints that are in no set any more.
    pub(super) fn release_endpoints(&mut self, service: &mut ProgrammedService) {
        let ProgrammedService {
            endpoints,
            cluster,
            local,
            ..
        } = service;
        endpoints.retain(|address, number| {
            let used = cluster
                .iter()
                .chain(&*local)
                .any(|set| set.index.contains_key(address));
            if !used {
                self.numbers.release(*number);
            }
            used
        });
    }
}
