//! Strings that many objects repeat: names of nodes, namespaces and ports. A source makes a new
//! string for each mention; of 100,000 endpoints most name the same few nodes.

use std::sync::Arc;

use crate::{EndpointSlice, ObjectName, Service};

/// Strings that are in use, each once.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    #[expect(
        clippy::disallowed_types,
        reason = "looked up only: one look-up for every endpoint that arrives"
    )]
    strings: std::collections::HashSet<Arc<str>>,
    /// How many were in use when it was last looked which are.
    in_use: usize,
}

/// Fewer strings than this are not worth a look.
const FEW: usize = 64;

impl Shared {
    /// Lets `service` share what it repeats, and gives back memory that it does not need.
    pub(crate) fn share_service(&mut self, service: &mut Service) {
        self.share_name(&mut service.name);
        for port in &mut service.ports {
            self.share(&mut port.name);
        }
        service.ports.shrink_to_fit();
        service.cluster_ips.shrink_to_fit();
    }

    /// The same for `slice`.
    pub(crate) fn share_slice(&mut self, slice: &mut EndpointSlice) {
        self.share_name(&mut slice.name);
        self.share_name(&mut slice.service);
        for port in &mut slice.ports {
            self.share(&mut port.name);
        }
        for node in slice
            .endpoints
            .iter_mut()
            .filter_map(|one| one.node.as_mut())
        {
            self.share(node);
        }
        slice.ports.shrink_to_fit();
        slice.endpoints.shrink_to_fit();
    }

    /// Names within a namespace are rarely repeated.
    fn share_name(&mut self, name: &mut ObjectName) {
        self.share(&mut name.namespace);
    }

    fn share(&mut self, string: &mut Arc<str>) {
        if let Some(known) = self.strings.get(string) {
            *string = Arc::clone(known);
        } else {
            self.forget_unused();
            self.strings.insert(Arc::clone(string));
        }
    }

    /// Nodes come and go; looks now and then, so that each string is looked at about once.
    fn forget_unused(&mut self) {
        if self.strings.len() > 2 * self.in_use + FEW {
            self.strings.retain(|string| Arc::strong_count(string) > 1);
            self.in_use = self.strings.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn string(text: &str) -> Arc<str> {
        text.into()
    }

    #[test]
    fn equal_strings_become_one() {
        let mut shared = Shared::default();
        let (mut a, mut b, mut c) = (string("node-a"), string("node-a"), string("node-b"));
        for one in [&mut a, &mut b, &mut c] {
            shared.share(one);
        }
        assert!(Arc::ptr_eq(&a, &b));
        assert!(!Arc::ptr_eq(&a, &c));
    }

    #[test]
    fn strings_out_of_use_are_forgotten() {
        let mut shared = Shared::default();
        let mut kept = string("kept");
        shared.share(&mut kept);
        for number in 0..10_000 {
            shared.share(&mut string(&format!("node-{number}")));
        }
        assert!(
            shared.strings.len() <= 2 + FEW + 1,
            "{}",
            shared.strings.len()
        );
        let mut again = string("kept");
        shared.share(&mut again);
        assert!(Arc::ptr_eq(&kept, &again));
    }
}
