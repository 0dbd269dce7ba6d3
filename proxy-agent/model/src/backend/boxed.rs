//! A backend in a box is a backend: whoever chooses one at run time need not be generic over it.

use super::{
    Backend, CompareError, Device, Difference, Figure, PacketLayer, RepairReport, SyncError,
    SyncReport,
};
use crate::{Capability, ChangeSet, NodeState};

// Every method is handed on, those with a default too: what the backend itself says counts.
impl<B: Backend + ?Sized> Backend for Box<B> {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn lacks(&self) -> &[Capability] {
        (**self).lacks()
    }

    fn sync(&mut self, state: &NodeState, change: &ChangeSet) -> Result<SyncReport, SyncError> {
        (**self).sync(state, change)
    }

    fn differences(&mut self, state: &NodeState) -> Result<Vec<Difference>, CompareError> {
        (**self).differences(state)
    }

    fn repair(&mut self, state: &NodeState) -> Result<RepairReport, SyncError> {
        (**self).repair(state)
    }

    fn disturbed(&mut self) -> bool {
        (**self).disturbed()
    }

    fn tend(&mut self, state: &NodeState) {
        (**self).tend(state);
    }

    fn lies_over(&mut self, beneath: PacketLayer) -> bool {
        (**self).lies_over(beneath)
    }

    fn devices(&self) -> Vec<Device> {
        (**self).devices()
    }

    fn figures(&self) -> Vec<Figure> {
        (**self).figures()
    }
}
