//! The end of flows at somebody's wish, while their packets go on.
//!
//! An entry cannot be removed on a condition, and a program that has found one of them puts
//! another one back (`track::pair::keep`). So all entries of a flow are removed, then one waits until every
//! program has ended that ran meanwhile, and looks again: what such a program put back goes in the next
//! round. A flow is gone when a whole round finds none of its entries.
//!
//! An entry with another serial is a later flow's, which began after the first one was gone: it stays.

use std::{io, net::SocketAddr};

use proxy_backend::connections::Ended;
use proxy_common::track::{ConnectionKey, Table};

use super::Identity;

/// Rounds until a flow counts as one that comes back. Each takes a packet of the flow within the
/// microseconds between two system calls.
const ROUNDS: usize = 8;

/// The maps of flows, and the programs that use them.
pub trait Entries {
    /// The serial of the entry; `None` without one.
    fn serial(&self, table: Table, key: &ConnectionKey) -> io::Result<Option<u32>>;

    /// Removes the entry, if it is there.
    fn remove(&mut self, table: Table, key: &ConnectionKey) -> io::Result<()>;

    /// Waits until all programs have ended that run now.
    fn settle(&mut self);
}

/// A flow, and whom its endpoint sees, if not the client.
pub type Ending = (Identity, Option<SocketAddr>);

/// Ends these flows. One that was gone before counts for nothing.
pub fn end(entries: &mut impl Entries, flows: &[Ending]) -> io::Result<Ended> {
    let mut there = remaining(entries, flows.iter())?;
    let met = there.len() as u64;
    for _ in 1..ROUNDS {
        if there.is_empty() {
            break;
        }
        entries.settle();
        there = remaining(entries, there.into_iter())?;
    }
    let came_back = there.len() as u64;
    Ok(Ended {
        removed: met - came_back,
        came_back,
    })
}

/// Removes the entries of `flows`; those of which there were any.
fn remaining<'a>(
    entries: &mut impl Entries,
    flows: impl Iterator<Item = &'a Ending>,
) -> io::Result<Vec<&'a Ending>> {
    let mut met = Vec::new();
    for ending in flows {
        let (flow, source) = ending;
        let mut there = false;
        // As programs do it: what takes packets of the client goes first.
        for key in flow.keys(*source) {
            for table in [Table::Track, Table::Opening] {
                if entries.serial(table, &key)? == Some(flow.serial) {
                    entries.remove(table, &key)?;
                    there = true;
                }
            }
        }
        if there {
            met.push(ending);
        }
    }
    Ok(met)
}
