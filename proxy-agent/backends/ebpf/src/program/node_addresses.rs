//! The addresses on which NodePorts answer. Those that go are removed before anything else of a
//! sync, and those that come are added after everything else: a NodePort of before is never met
//! on an address of after.

use std::net::IpAddr;

use super::{
    super::{
        encode,
        entry::{Entry, Key, MapError, ServiceMaps},
    },
    Programmer,
};

impl<M: ServiceMaps> Programmer<M> {
    /// Removes addresses that are not `wanted`, which is ordered.
    pub fn remove_node_addresses(&mut self, wanted: &[IpAddr]) -> Result<(), MapError> {
        let held: Vec<_> = self.programmed.node_addresses.iter().copied().collect();
        for address in held {
            if wanted.binary_search(&address).is_err() {
                let (key, _) = encode::node_address(address);
                self.delete(Key::NodeAddress(key))?;
                self.programmed.node_addresses.remove(&address);
            }
        }
        Ok(())
    }

    /// Adds the addresses that are `wanted`. Returns those there is no room for.
    pub fn add_node_addresses(&mut self, wanted: &[IpAddr]) -> Result<Vec<IpAddr>, MapError> {
        let mut left_out = Vec::new();
        for &address in wanted {
            if self.programmed.node_addresses.contains(&address) {
                continue;
            }
            if self.programmed.used.node_addresses >= self.capacity.node_addresses {
                left_out.push(address);
                continue;
            }
            let (key, value) = encode::node_address(address);
            match self.put(Entry::NodeAddress(key, value), true) {
                Ok(()) => {
                    self.programmed.node_addresses.insert(address);
                }
                // What there is no memory for must not stop the rest.
                Err(error) if error.no_room => left_out.push(address),
                Err(error) => return Err(error),
            }
        }
        Ok(left_out)
    }
}
