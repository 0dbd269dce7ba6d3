//! The frontends of Service ports: the last that is written of a Service and the first that goes.

use proxy_common::frontend::{FrontendKey, FrontendValue, LEADS_TO_LOCAL};
use proxy_model::{ServicePortKey, ServiceState};

use super::{
    super::{
        encode::{self, Leaves, WantedFrontend},
        entry::{Entry, Key, MapError, ServiceMaps},
        programmed::{Programmed, ProgrammedService, ProgrammedSet},
    },
    POLICIES, Programmer,
};

/// What FRONTENDS shall hold for a frontend of this Service port, whose sets are written.
fn value(
    service: &ProgrammedService,
    state: &ServiceState,
    wanted: &WantedFrontend,
) -> FrontendValue {
    let number = |set: &Option<ProgrammedSet>, used: bool| {
        set.as_ref().filter(|_| used).map_or(0, |set| set.number)
    };
    FrontendValue {
        service: service.number,
        cluster_set: number(&service.cluster, state.cluster_endpoints.is_some()),
        local_set: number(&service.local, state.local_endpoints.is_some()),
        flags: wanted.flags,
        affinity: wanted.affinity,
        check: 0,
    }
    .sealed(&wanted.key)
}

/// What a frontend that is given up leads to until it is removed: as before, as far as the sets
/// that it leads to will still be there.
fn given_up(state: &ServiceState, key: FrontendKey, before: &FrontendValue) -> WantedFrontend {
    let local = match (&state.cluster_endpoints, &state.local_endpoints) {
        (Some(_), Some(_)) => before.flags & LEADS_TO_LOCAL,
        (None, _) => LEADS_TO_LOCAL,
        (_, None) => 0,
    };
    WantedFrontend {
        key,
        flags: before.flags & !LEADS_TO_LOCAL | local,
        affinity: before.affinity,
    }
}

impl Programmed {
    /// Whether the maps lead to exactly what `state` says, if they hold what this says.
    pub fn is_current(&self, key: &ServicePortKey, state: &ServiceState, leaves: Leaves) -> bool {
        let (Some(service), Some(protocol)) = (
            self.services.get(key),
            encode::protocol_number(key.protocol),
        ) else {
            return false;
        };
        let sets =
            POLICIES.iter().all(
                |policy| match (policy.wanted(state), policy.held(service)) {
                    (None, None) => true,
                    (Some(wanted), Some(set)) => {
                        set.slots.len() == wanted.len()
                            && set.gone(wanted).is_empty()
                            && set.places(wanted)
                    }
                    _ => false,
                },
            );
        let frontends: Vec<_> = encode::frontends(key, state, protocol, leaves).collect();
        let is_right = |wanted: &WantedFrontend| {
            self.frontends.get(&wanted.key) == Some(&value(service, state, wanted))
        };
        let ranges = encode::ranges(service.number, state, &frontends);
        sets && service.ranges == ranges
            && service.frontends.len() == frontends.len()
            && frontends.iter().all(is_right)
    }
}

impl<M: ServiceMaps> Programmer<M> {
    /// Writes the frontends that the Service port shall have, and gives up those it shall not.
    pub(super) fn write_frontends(
        &mut self,
        service: &mut ProgrammedService,
        state: &ServiceState,
        wanted: Vec<WantedFrontend>,
    ) -> Result<(), MapError> {
        let keys: Vec<FrontendKey> = wanted.iter().map(|one| one.key).collect();
        let held = service.frontends.iter().copied();
        let gone: Vec<FrontendKey> = held
            .filter(|key| !keys.contains(key) && self.holds(service.number, key))
            .collect();
        // Those that are given up still lead to endpoints until they are removed.
        let leading = gone.iter().filter_map(|key| {
            let before = self.programmed.frontends.get(key)?;
            Some(given_up(state, *key, before))
        });
        let all: Vec<_> = wanted.into_iter().chain(leading).collect();
        for one in all {
            let value = value(service, state, &one);
            let before = self.programmed.frontends.get(&one.key);
            if before != Some(&value) {
                let added = before.is_none();
                self.put(Entry::Frontend(one.key, value), added)?;
                self.programmed.frontends.insert(one.key, value);
            }
        }
        self.given_up
            .extend(gone.into_iter().map(|key| (service.number, key)));
        service.frontends = keys;
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
    pub(super) fn remove_frontend(
        &mut self,
        service: u32,
        key: &FrontendKey,
    ) -> Result<(), MapError> {
        if self.holds(service, key) {
            self.delete(Key::Frontend(*key))?;
            self.programmed.frontends.remove(key);
        }
        Ok(())
    }
}
