//! The EndpointSlices of one Service, ordered by name. Most Services have one.

use crate::{EndpointSlice, SliceName};

/// A vector instead of a map: a map node has room for eleven slices.
#[derive(Debug, Default)]
pub(crate) struct SlicesOfService(Vec<EndpointSlice>);

impl SlicesOfService {
    /// Files `slice`, whose name is not there yet.
    pub(crate) fn insert(&mut self, slice: EndpointSlice) {
        if self.0.len() == self.0.capacity() {
            // Room for a quarter more; the first one gets room for itself.
            self.0.reserve_exact(1 + self.0.len() / 4);
        }
        let place = self.0.partition_point(|other| other.name < slice.name);
        self.0.insert(place, slice);
    }

    pub(crate) fn remove(&mut self, name: &SliceName) {
        if let Ok(index) = self.find(name) {
            self.0.remove(index);
        }
    }

    pub(crate) fn get_mut(&mut self, name: &SliceName) -> Option<&mut EndpointSlice> {
        let index = self.find(name).ok()?;
        Some(&mut self.0[index])
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &EndpointSlice> + Clone {
        self.0.iter()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn find(&self, name: &SliceName) -> Result<usize, usize> {
        self.0.binary_search_by(|slice| slice.name.cmp(name))
    }
}
