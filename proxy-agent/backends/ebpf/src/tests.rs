//! The pure parts together: on maps in memory, with the kernel programs' own decision.

mod beneath;
mod damage;
mod faults;
mod fixtures;
mod kept;
mod limits;
mod numbers;
mod order;
mod outside;
mod ranges;

use std::{collections::BTreeSet, sync::Arc};

use proxy_model::NodeState;

use super::render;
use fixtures::{key, service};

#[test]
fn rendering_is_stable_text() {
    let mut state = NodeState::default();
    let local = BTreeSet::from([3]);
    state.services.insert(
        key(1),
        Arc::new(service(1, &BTreeSet::from([1, 3]), Some(&local))),
    );
    let expected = "\
SERVICES 1 shop/s1:http/TCP/IPv4
SLOTS set 2 index 0 endpoint 3 at 10.244.0.3:8080
MEMBERS set 2 endpoint 3 index 0
SETS 2 count 1
FRONTENDS 10.96.0.1:80/TCP service 1 local-set 2 leads-to-local endpoints-exist
";
    assert_eq!(render(&state, false, false), expected);
}
