//! The two sets of a Service port. Adding or removing one endpoint is O(1) writes.

use std::net::SocketAddr;

use proxy_common::endpoint::{MemberKey, MemberValue, SetKey, SetValue, SlotKey, SlotValue};
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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

    /// The set as it is in the maps, if there is one.
    pub fn held(self, service: &ProgrammedService) -> Option<&ProgrammedSet> {
        match self {
            Self::Cluster => service.cluster.as_ref(),
            Self::Local => service.local.as_ref(),
        }
    }

    /// The same, to change it.
    pub fn programmed(self, service: &mut ProgrammedService) -> &mut Option<ProgrammedSet> {
        match self {
            Self::Cluster => &mut service.cluster,
            Self::Local => &mut service.local,
        }
    }
}

const fn member(set: u32, endpoint: u32) -> Key {
    Key::Member(MemberKey { set, endpoint })
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
            let number = match self.remembered.set(service.number, policy) {
                Some(number) => number,
                None => self.number()?,
            };
            let set = ProgrammedSet::new(number);
            let (key, value) = (SetKey { set: set.number }, SetValue::new(set.number, 0));
            self.put(Entry::Set(key, value), true)?;
            set
        };
        let result = self.extend(service, &mut set, wanted);
        *policy.programmed(service) = Some(set);
        result
    }

    /// Puts what is missing in the places of what is gone, adds the rest, and only then raises the
    /// count: programs see all that was added at once.
    fn extend(
        &mut self,
        service: &mut ProgrammedService,
        set: &mut ProgrammedSet,
        wanted: &[Endpoint],
    ) -> Result<(), MapError> {
        let mut gone = set.gone(wanted).into_iter();
        let before = set.count();
        for wanted in wanted {
            let (address, is_here) = (wanted.address, wanted.is_here());
            if let Some(index) = set.index.get(&address).copied() {
                if set.is_here(&address) != is_here {
                    let endpoint = service.endpoints[&address];
                    let value = encode::slot_value(set.number, endpoint, address, is_here);
                    self.put_slot(set.number, index, value, false)?;
                    set.place(address, is_here);
                }
                continue;
            }
            let endpoint = self.endpoint(service, address)?;
            let value = encode::slot_value(set.number, endpoint, address, is_here);
            if let Some(old) = gone.next() {
                let index = set.index[&old];
                self.delete(member(set.number, service.endpoints[&old]))?;
                self.put_slot(set.number, index, value, false)?;
                self.put_member(set.number, endpoint, index, true)?;
                set.replace(&old, address, is_here);
            } else {
                let index = set.count();
                self.put_slot(set.number, index, value, true)?;
                self.put_member(set.number, endpoint, index, true)?;
                set.push(address, is_here);
            }
        }
        if set.count() != before {
            self.put_count(set.number, set.count())?;
        }
        Ok(())
    }

    fn put_slot(
        &mut self,
        set: u32,
        index: u32,
        value: SlotValue,
        added: bool,
    ) -> Result<(), MapError> {
        self.put(Entry::Slot(SlotKey { set, index }, value), added)
    }

    fn put_member(
        &mut self,
        set: u32,
        endpoint: u32,
        index: u32,
        added: bool,
    ) -> Result<(), MapError> {
        self.put(
            Entry::Member(MemberKey { set, endpoint }, MemberValue { index }),
            added,
        )
    }

    fn put_count(&mut self, set: u32, count: u32) -> Result<(), MapError> {
        self.put(Entry::Set(SetKey { set }, SetValue::new(set, count)), false)
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
        for address in set.gone(wanted) {
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
        self.delete(member(number, service.endpoints[&address]))?;
        if index != last_index {
            let last = set.slots[last_index as usize];
            let endpoint = service.endpoints[&last];
            let value = encode::slot_value(number, endpoint, last, set.is_here(&last));
            self.put_slot(number, index, value, false)?;
            self.put_member(number, endpoint, index, false)?;
        }
        self.put_count(number, last_index)?;
        self.delete(Key::Slot(SlotKey {
            set: number,
            index: last_index,
        }))?;
        set.remove(&address);
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
            self.delete(member(number, endpoint))?;
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
