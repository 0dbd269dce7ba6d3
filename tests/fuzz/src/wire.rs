//! What comes from a brain, as bytes: operations, each behind its length, as a fuzzer invents them.

use prost::Message as _;
use proxy_agent::report::explain::Known;
use proxy_api::{Replica, client::Gathering, wire};

use crate::questions;

/// More operations than this teach a fuzzer nothing new.
const OPERATIONS: usize = 256;

/// Reads `data` as what a brain tells a client that has nothing.
///
/// # Panics
///
/// If a change does not lead from the state before it to the state after it, or anything is
/// broken.
pub fn run(mut data: &[u8]) {
    let mut gathering = Gathering::of_watch(false);
    let mut replica = Replica::new();
    for _ in 0..OPERATIONS {
        let Ok(operation) = wire::Operation::decode_length_delimited(&mut data) else {
            break;
        };
        match gathering.take(operation) {
            Ok(None) => {}
            Ok(Some(batch)) => {
                let before = replica.state().clone();
                replica.apply(batch);
                let change = replica.update();
                assert_eq!(change, before.changes_to(replica.state()));
                let state = replica.state();
                let packets = questions::to_frontends(state);
                questions::ask(Known::from(state), packets);
            }
            // A client hangs up, and begins anew.
            Err(_) => gathering = Gathering::of_watch(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::run;

    #[test]
    fn any_bytes_pass() {
        crate::noise().for_each(|bytes| run(&bytes));
    }
}
