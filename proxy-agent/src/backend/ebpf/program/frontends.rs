//! The frontends of Service ports: the last that is written of a Service and the first that goes.

use proxy_common::frontend::{FrontendKey, FrontendValue};
use proxy_model::{ServicePortKey, ServiceState};

use super::{
    super::{
        encode,
        entry::{Entry, Key, MapError, ServiceMaps},
        programmed::{Programmed, ProgrammedService, ProgrammedSet},
    },
    POLICIES, Programmer,
};

/// What FRONTENDS shall hold for a frontend of this Service port, whose sets are written.
fn value(service: &ProgrammedService, state: &ServiceState, key: &FrontendKey) -> FrontendValue {
    let number = |set: &Option<ProgrammedSet>, used: bool| {
        set.as_ref().filter(|_| used).map_or(0, |set| set.number)
    };
    FrontendValue {
        service: service.number,
        cluster_set: number(&service.cluster, state.cluster_endpoints.is_some()),
        local_set: number(&service.local, state.local_endpoints.is_some()),
        flags: encode::frontend_flags(state),
        check: 0,
    }
    .sealed(key)
}

impl Programmed {
    /// Whether the maps lead to exactly what `state` says, if they hold what this says.
    pub fn is_current(&self, key: &ServicePortKey, state: &ServiceState) -> bool {
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
                        set.slots.len() == wanted.len() && set.gone(wanted).is_empty()
                    }
                    _ => false,
                },
            );
        let frontends: Vec<_> = encode::frontend_keys(state, protocol).collect();
        let is_right =
            |key: &FrontendKey| self.frontends.get(key) == Some(&value(service, state, key));
        sets && service.frontends.len() == frontends.len() && frontends.iter().all(is_right)
    }
}

impl<M: ServiceMaps> Programmer<M> {
    /// Writes the frontends that the Service port shall have, and gives up those it shall not.
    pub(super) fn write_frontends(
        &mut self,
        service: &mut ProgrammedService,
        state: &ServiceState,
        wanted: Vec<FrontendKey>,
    ) -> Result<(), MapError> {
        let gone: Vec<FrontendKey> = service
            .frontends
            .iter()
            .filter(|key| !wanted.contains(key) && self.holds(service.number, key))
            .copied()
            .collect();
        // Those that are given up still lead to the right endpoints until they are removed.
        for key in wanted.iter().chain(&gone) {
            let value = value(service, state, key);
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
