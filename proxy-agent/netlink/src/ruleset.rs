//! All chains and rules of nftables in this network namespace, whosever they are, as the kernel keeps
//! them: those of `iptables-nft` are among them. Knows how they are listed, not what they do.

use std::io;

use netlink_sys::protocols::NETLINK_NETFILTER;

use crate::{
    attributes::{Attributes, Read},
    exchange::exchange,
    message::{Head, Messages, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, attributes, is_interrupted},
    nf_tables::{
        NFNL_SUBSYS_NFTABLES, NFPROTO_INET, NFPROTO_IPV4, NFPROTO_IPV6, NFPROTO_NETDEV,
        NFT_MSG_GETCHAIN, NFT_MSG_GETGEN, NFT_MSG_GETRULE, NFT_MSG_GETTABLE, NFTA_CHAIN_HOOK,
        NFTA_CHAIN_NAME, NFTA_CHAIN_POLICY, NFTA_GEN_ID, NFTA_HOOK_DEV, NFTA_HOOK_DEVS,
        NFTA_HOOK_HOOKNUM, NFTA_HOOK_PRIORITY, NFTA_RULE_CHAIN, NFTA_RULE_EXPRESSIONS,
        NFTA_RULE_HANDLE, NFTA_TABLE_NAME,
    },
    socket::Socket,
};

/// The families whose rules packets to this host and through it meet.
pub const FAMILIES: [u8; 4] = [NFPROTO_INET, NFPROTO_IPV4, NFPROTO_NETDEV, NFPROTO_IPV6];
/// How often a list is begun anew because what is listed changed meanwhile.
const ATTEMPTS: usize = 16;

/// Where a table is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Table {
    /// `NFPROTO_…`.
    pub family: u8,
    /// Its name.
    pub name: String,
}

/// Tables with their chains.
pub type Tables = Vec<(Table, Vec<Chain>)>;

/// A chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// Its name.
    pub name: String,
    /// Where packets come to it by themselves; none if only rules lead to it.
    pub hook: Option<Hook>,
    /// What becomes of a packet at its end, `NF_ACCEPT` or `NF_DROP`.
    pub policy: Option<u32>,
    /// Its rules in their order.
    pub rules: Vec<Rule>,
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The number that the kernel knows it by in its table.
    pub handle: u64,
    /// What it does (`NFTA_RULE_EXPRESSIONS`).
    pub expressions: Vec<u8>,
}

/// Where packets come to a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// `NF_INET_PRE_ROUTING` and its like; another row of numbers for family netdev.
    pub number: u32,
    /// Chains at one hook run in this order.
    pub priority: i32,
    /// The devices of a chain of family netdev.
    pub devices: Vec<String>,
}

/// Counts up with each change of any rule, whosever.
pub fn generation() -> io::Result<u32> {
    let head = Head {
        kind: kind(NFT_MSG_GETGEN),
        // The acknowledgement ends the answer.
        flags: NLM_F_REQUEST | NLM_F_ACK,
        ..Head::default()
    };
    let mut generation = None;
    let mut socket = Socket::open(NETLINK_NETFILTER)?;
    let request = Messages::one(head, |_| {});
    exchange(&mut socket, request.as_bytes(), |message| {
        generation = generation.or(Read(attributes(message)).number(NFTA_GEN_ID));
        Ok(())
    })??;
    generation
        .ok_or_else(|| io::Error::other("the kernel did not tell the generation of its rules"))
}

/// All tables of these families but those that `skipped` says, with their chains. None on a kernel
/// without nftables.
pub fn read(families: &[u8], skipped: impl Fn(&Table) -> bool) -> io::Result<Tables> {
    let mut socket = Socket::open(NETLINK_NETFILTER)?;
    for _ in 0..ATTEMPTS {
        if let Some(all) = attempt(&mut socket, families, &skipped)? {
            return Ok(all);
        }
    }
    Err(io::Error::other(
        "the rules of nftables change faster than they can be read",
    ))
}

/// `None` where something changed meanwhile.
fn attempt(
    socket: &mut Socket,
    families: &[u8],
    skipped: impl Fn(&Table) -> bool,
) -> io::Result<Option<Tables>> {
    let mut all = Vec::new();
    for family in families.iter().copied() {
        let mut tables = Vec::new();
        let listed = list(
            socket,
            family,
            NFT_MSG_GETTABLE,
            |_| {},
            |table| {
                tables.extend(table.text(NFTA_TABLE_NAME).map(str::to_owned));
            },
        );
        let mut whole = match listed {
            Err(error) if is_unknown(&error) => continue,
            listed => listed?,
        };
        for name in tables {
            let table = Table { family, name };
            if skipped(&table) {
                continue;
            }
            let mut chains: Vec<Chain> = Vec::new();
            let of_table = |attributes: &mut Attributes<'_>| {
                attributes.text(NFTA_TABLE_NAME, &table.name);
            };
            whole &= list(socket, family, NFT_MSG_GETCHAIN, of_table, |chain| {
                // Kernels list the chains of all tables, whatever they were asked.
                if chain.text(NFTA_TABLE_NAME) == Some(&table.name) {
                    chains.extend(read_chain(chain));
                }
            })?;
            whole &= list(socket, family, NFT_MSG_GETRULE, of_table, |rule| {
                let name = rule.text(NFTA_RULE_CHAIN);
                let chain = chains.iter_mut().find(|chain| Some(&*chain.name) == name);
                if let Some(chain) = chain
                    && rule.text(NFTA_TABLE_NAME) == Some(&table.name)
                {
                    chain.rules.extend(read_rule(rule));
                }
            })?;
            all.push((table, chains));
        }
        if !whole {
            return Ok(None);
        }
    }
    Ok(Some(all))
}

fn read_chain(chain: Read<'_>) -> Option<Chain> {
    let hook = chain.nested(NFTA_CHAIN_HOOK);
    Some(Chain {
        name: chain.text(NFTA_CHAIN_NAME)?.to_owned(),
        hook: hook.number(NFTA_HOOK_HOOKNUM).map(|number| {
            let several = hook.nested(NFTA_HOOK_DEVS).each();
            let one = hook.get(NFTA_HOOK_DEV).into_iter();
            let devices = several.map(|(_, name)| name).chain(one);
            Hook {
                number,
                priority: hook.number(NFTA_HOOK_PRIORITY).unwrap_or(0).cast_signed(),
                devices: devices.map(crate::attributes::text).collect(),
            }
        }),
        policy: chain.number(NFTA_CHAIN_POLICY),
        rules: Vec::new(),
    })
}

fn read_rule(rule: Read<'_>) -> Option<Rule> {
    let handle = rule.get(NFTA_RULE_HANDLE)?.try_into().ok()?;
    Some(Rule {
        handle: u64::from_be_bytes(handle),
        expressions: rule.get(NFTA_RULE_EXPRESSIONS)?.to_vec(),
    })
}

/// Shows the attributes of each object of a kind. Whether they are all.
fn list(
    socket: &mut Socket,
    family: u8,
    what: u16,
    fill: impl FnOnce(&mut Attributes<'_>),
    mut one: impl FnMut(Read<'_>),
) -> io::Result<bool> {
    let head = Head {
        kind: kind(what),
        flags: NLM_F_REQUEST | NLM_F_DUMP,
        family,
        resource: 0,
    };
    let mut whole = true;
    let listed = exchange(socket, Messages::one(head, fill).as_bytes(), |message| {
        whole &= !is_interrupted(message);
        one(Read(attributes(message)));
        Ok(())
    })?;
    match listed {
        // The table is gone meanwhile.
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        listed => listed.map(|()| whole),
    }
}

const fn kind(message: u16) -> u16 {
    NFNL_SUBSYS_NFTABLES << 8 | message
}

/// Whether an error says that the kernel has no nftables, or not for this family.
pub fn is_unknown(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINVAL | libc::EOPNOTSUPP | libc::EAFNOSUPPORT | libc::EPROTONOSUPPORT)
    )
}
