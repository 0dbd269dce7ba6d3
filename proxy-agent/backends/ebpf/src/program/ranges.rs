//! The source ranges of Service ports. Those that come are added before the frontends that ask for
//! them, and those that go are removed after: in between, a client is admitted that was before or will
//! be.

use std::collections::BTreeSet;

use proxy_common::{
    frontend::{LEFT_ALONE, RANGED},
    ranges::{RangeKey, RangeValue},
};
use proxy_model::ServiceState;

use super::{
    super::{
        encode::{self, WantedFrontend},
        entry::{Entry, Key, MapError, ServiceMaps},
        programmed::ProgrammedService,
    },
    Programmer,
};

impl<M: ServiceMaps> Programmer<M> {
    /// Adds those that are `wanted` and not there.
    pub(super) fn add_ranges(
        &mut self,
        service: &mut ProgrammedService,
        wanted: &BTreeSet<RangeKey>,
    ) -> Result<(), MapError> {
        for key in wanted {
            if !service.ranges.contains(key) {
                let value = RangeValue::new(service.number);
                self.put(Entry::Range(*key, value), true)?;
                service.ranges.insert(*key);
            }
        }
        Ok(())
    }

    /// Removes those that are there and not `wanted`.
    pub(super) fn remove_ranges(
        &mut self,
        service: &mut ProgrammedService,
        wanted: &BTreeSet<RangeKey>,
    ) -> Result<(), MapError> {
        let gone: Vec<_> = service.ranges.difference(wanted).copied().collect();
        for key in gone {
            self.delete(Key::Range(key))?;
            service.ranges.remove(&key);
        }
        Ok(())
    }

    /// Lets nobody in who is in none of the ranges that `state` has, without writing more entries: to
    /// be called where what the Service port wants does not fit.
    pub(super) fn restrict(
        &mut self,
        service: &mut ProgrammedService,
        state: &ServiceState,
        frontends: &[WantedFrontend],
    ) -> Result<(), MapError> {
        const RESTRICTED: u32 = RANGED | LEFT_ALONE;
        for wanted in frontends.iter().filter(|one| one.flags & RANGED != 0) {
            let held = self.programmed.frontends.get(&wanted.key);
            let held = held.filter(|value| value.service == service.number);
            if let Some(mut value) = held.copied()
                && value.flags & RESTRICTED != RESTRICTED
            {
                value.flags |= RESTRICTED;
                let value = value.sealed(&wanted.key);
                self.put(Entry::Frontend(wanted.key, value), false)?;
                self.programmed.frontends.insert(wanted.key, value);
            }
        }
        if state.source_ranges.is_some() {
            let wanted = encode::ranges(service.number, state, frontends);
            self.remove_ranges(service, &wanted)?;
        }
        Ok(())
    }
}
