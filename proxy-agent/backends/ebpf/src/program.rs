//! Turns desired Service ports into writes, in an order in which programs never see a Service
//! torn: what is pointed to is written before what points to it, and removed after it.
//!
//! ```text
//! before:  NODE_ADDRS                       (what is gone)
//! upsert:  SERVICES, SLOTS, MEMBERS, SETS   (what is new)
//!          RANGES                           (new)
//!          FRONTENDS                        (new and changed)
//!          MEMBERS, SLOTS, SETS, RANGES     (what is gone)
//! settle:  FRONTENDS                        (what no Service of the sync took over)
//! after:   NODE_ADDRS                       (what is new)
//! ```
//!
//! Adding or removing one endpoint takes the same few writes, however large the set is.

use std::collections::BTreeSet;

use proxy_common::{frontend::FrontendKey, service::ServiceKey};
use proxy_model::{ServicePortKey, ServiceState};
use thiserror::Error;

use super::{
    capacity::{self, Capacity, Full},
    encode::{self, Leaves, WantedFrontend},
    entry::{Entry, Key, MapError, ServiceMaps},
    numbers::Numbers,
    programmed::{Programmed, ProgrammedService},
};

mod frontends;
mod mend;
mod node_addresses;
mod ranges;
mod remembered;
mod sets;

use remembered::Remembered;
use sets::POLICIES;

/// Writes desired Service ports to the maps.
#[derive(Debug)]
pub struct Programmer<M> {
    maps: M,
    programmed: Programmed,
    numbers: Numbers,
    capacity: Capacity,
    leaves: Leaves,
    remembered: Remembered,
    /// Frontends that upserts gave up, with the Service that held them: removed by `settle`,
    /// because another Service's upsert may take one over.
    given_up: Vec<(u32, FrontendKey)>,
    writes: usize,
}

/// Why nothing is written for a Service port.
#[derive(Debug, Error)]
pub enum Refusal {
    /// No program would ever read it.
    #[error("the socket hooks never see SCTP")]
    Sctp,
    /// It fits into no entry.
    #[error("a name in it is longer than the 63 bytes that Kubernetes allows")]
    LongName,
    /// It does not fit beside all others.
    #[error(transparent)]
    Full(#[from] Full),
    /// The same, where a packet backend beneath serves it.
    #[error("{0}; until it fits, the layer beneath serves it")]
    Left(Full),
}

/// Why a Service port was not programmed.
#[derive(Debug, Error)]
pub enum ProgramError {
    /// Nothing was written for it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The kernel refused a write that should have succeeded: what the maps hold is no longer
    /// known and must be read back.
    #[error(transparent)]
    Map(#[from] MapError),
}

impl<M: ServiceMaps> Programmer<M> {
    /// Starts with maps that are taken to be empty; see [`Self::adopt`].
    pub fn new(maps: M, capacity: Capacity) -> Self {
        Self {
            maps,
            programmed: Programmed::default(),
            numbers: Numbers::default(),
            capacity,
            leaves: Leaves::default(),
            remembered: Remembered::default(),
            given_up: Vec::new(),
            writes: 0,
        }
    }

    /// What is left to others from the next upsert on. Returns whether that is something else than
    /// before: then every Service port has to be looked at again.
    pub fn leave(&mut self, leaves: Leaves) -> bool {
        std::mem::replace(&mut self.leaves, leaves) != leaves
    }

    /// Gives what is new the numbers that it has in `earlier`, other maps, until told otherwise.
    pub fn remember(&mut self, earlier: Programmed) {
        self.remembered = Remembered::of(earlier);
    }

    /// What the maps hold.
    pub fn programmed(&self) -> &Programmed {
        &self.programmed
    }

    /// The same, without the maps.
    #[cfg(test)]
    pub fn into_programmed(self) -> Programmed {
        self.programmed
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
            return Err(Refusal::Sctp.into());
        };
        let frontends: Vec<_> = encode::frontends(key, state, protocol, self.leaves).collect();
        let fits = capacity::check(&self.programmed, &self.capacity, key, state, &frontends);
        if let Err(full) = fits {
            if self.leaves.what_does_not_fit {
                self.remove(key)?;
                return Err(Refusal::Left(full).into());
            }
            self.drop_gone(key, state, &frontends)?;
            return Err(Refusal::Full(full).into());
        }

        // Taken out while it changes; put back whatever happens, so that an error loses nothing.
        let mut service = match self.programmed.services.remove(key) {
            Some(service) => service,
            None => self.begin(key)?,
        };
        let result = self.bring_to(&mut service, state, frontends);
        self.programmed.services.insert(key.clone(), service);
        Ok(result?)
    }

    /// Takes endpoints that no longer exist out of a Service port that does not fit as a whole, and
    /// puts new ones in their places: clients must not be sent to where nobody answers. Nor may any
    /// come in that the Service does not admit any more.
    fn drop_gone(
        &mut self,
        key: &ServicePortKey,
        state: &ServiceState,
        frontends: &[WantedFrontend],
    ) -> Result<(), MapError> {
        let Some(mut service) = self.programmed.services.remove(key) else {
            return Ok(());
        };
        let mut result = Ok(());
        for policy in POLICIES {
            if let (Some(wanted), Some(set)) =
                (policy.wanted(state), policy.programmed(&mut service))
            {
                let fitting = set.fitting(wanted);
                result = result
                    .and_then(|()| self.add_endpoints(&mut service, policy, &fitting))
                    .and_then(|()| self.remove_endpoints(&mut service, policy, Some(&fitting)));
            }
        }
        result = result.and_then(|()| self.restrict(&mut service, state, frontends));
        self.release_endpoints(&mut service);
        self.programmed.services.insert(key.clone(), service);
        result
    }

    /// Introduces a Service port that the maps do not know.
    fn begin(&mut self, key: &ServicePortKey) -> Result<ProgrammedService, ProgramError> {
        let service = match self.remembered.service(key) {
            Some(service) => service,
            None => ProgrammedService {
                number: self.number()?,
                ..ProgrammedService::default()
            },
        };
        let number = service.number;
        let Some(value) = encode::service_value(number, key) else {
            self.numbers.release(number);
            return Err(Refusal::LongName.into());
        };
        self.put(Entry::Service(ServiceKey { service: number }, value), true)?;
        Ok(service)
    }

    fn bring_to(
        &mut self,
        service: &mut ProgrammedService,
        state: &ServiceState,
        frontends: Vec<WantedFrontend>,
    ) -> Result<(), MapError> {
        for policy in POLICIES {
            if let Some(wanted) = policy.wanted(state) {
                self.add_endpoints(service, policy, wanted)?;
            }
        }
        let ranges = encode::ranges(service.number, state, &frontends);
        self.add_ranges(service, &ranges)?;
        self.write_frontends(service, state, frontends)?;
        for policy in POLICIES {
            self.remove_endpoints(service, policy, policy.wanted(state))?;
        }
        self.release_endpoints(service);
        self.remove_ranges(service, &ranges)
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
        self.release_endpoints(service);
        self.remove_ranges(service, &BTreeSet::new())?;
        self.delete(Key::Service(ServiceKey {
            service: service.number,
        }))?;
        self.numbers.release(service.number);
        Ok(())
    }

    /// A number that was never given out, reserved before it is used.
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
