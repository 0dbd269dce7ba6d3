//! The tables seen from afar: whether they are the same ones, with as many rules where the kernel
//! enters. Costs as much for any number of Services, so that a flush is seen at once, where
//! comparing all of it takes long.

use std::time::Duration;

use super::{
    expressions::nfproto,
    socket::{KernelError, Netlink, question},
};
use crate::{TABLE, wanted::Wanted};
use proxy_netlink::{message::NLM_F_ACK, nf_tables as abi};

/// Comparing because others change rules takes at most this part of the time.
const SHARE: u32 = 20;

/// What is seen of both tables, in a fixed order; what is not there is `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outline {
    tables: Vec<Option<SeenTable>>,
    chains: Vec<Option<SeenChain>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SeenTable {
    /// Another one if the table was made anew.
    handle: u64,
    /// Whether the kernel passes all of it by.
    flags: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SeenChain {
    handle: u64,
    /// Nothing can lead to a chain with a hook, so this is the number of its rules.
    rules: u32,
}

impl Outline {
    /// Looks.
    pub fn see(netlink: &mut Netlink, tables: &[Wanted; 2]) -> Result<Self, KernelError> {
        let mut seen = Self {
            tables: Vec::new(),
            chains: Vec::new(),
        };
        for wanted in tables {
            let family = nfproto(wanted.facts.family);
            let ask = |kind, chain: Option<&str>| {
                question(family, kind, NLM_F_ACK, |request| {
                    // The same number for tables and chains.
                    request.text(abi::NFTA_TABLE_NAME, TABLE);
                    if let Some(chain) = chain {
                        request.text(abi::NFTA_CHAIN_NAME, chain);
                    }
                })
            };
            let request = ask(abi::NFT_MSG_GETTABLE, None);
            let table = netlink.ask(&request, "looking for the table", |read| SeenTable {
                handle: read.long(abi::NFTA_TABLE_HANDLE).unwrap_or(0),
                flags: read.number(abi::NFTA_TABLE_FLAGS).unwrap_or(0),
            })?;
            seen.tables.push(table);
            for chain in wanted.fixed.iter().filter(|chain| chain.hook.is_some()) {
                let request = ask(abi::NFT_MSG_GETCHAIN, Some(chain.name));
                let chain = netlink.ask(&request, "looking for a chain", |read| SeenChain {
                    handle: read.long(abi::NFTA_CHAIN_HANDLE).unwrap_or(0),
                    rules: read.number(abi::NFTA_CHAIN_USE).unwrap_or(0),
                })?;
                seen.chains.push(chain);
            }
        }
        Ok(seen)
    }

    /// Whether all is there, with as many rules as there should be.
    pub fn is_whole(&self, tables: &[Wanted; 2]) -> bool {
        let hooks = tables.iter().flat_map(|wanted| &wanted.fixed);
        let mut hooks = hooks.filter(|chain| chain.hook.is_some());
        self.tables.iter().all(Option::is_some)
            && self.chains.iter().all(|seen| {
                let wanted = hooks.next().map(|chain| chain.rules.len());
                seen.map(|seen| seen.rules as usize) == wanted
            })
    }
}

/// Whether to compare all of it now that somebody has changed rules, of these tables or of others:
/// at once if the tables are not what they were seen to be, otherwise when it was left alone for
/// long enough. `compared`: how long the last time took, and how long ago it was over.
pub fn is_due(compared: Option<(Duration, Duration)>, is_as_it_was: impl FnOnce() -> bool) -> bool {
    compared.is_none_or(|(took, ago)| ago >= took * SHARE) || !is_as_it_was()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    #[test]
    fn comparing_is_rationed_while_the_tables_are_seen_to_be_there() {
        let never = || -> bool { unreachable!("what is due anyhow needs no look") };
        assert!(is_due(None, never));
        assert!(is_due(Some((HOUR, HOUR * SHARE)), never));
        let seconds = Duration::from_secs;
        assert!(!is_due(Some((HOUR, seconds(1))), || true));
        assert!(!is_due(Some((seconds(1), seconds(19))), || true));
    }

    #[test]
    fn what_is_gone_waits_for_no_ration() {
        let second = Duration::from_secs(1);
        assert!(is_due(Some((HOUR, second)), || false));
        assert!(is_due(Some((HOUR, Duration::ZERO)), || false));
    }
}
