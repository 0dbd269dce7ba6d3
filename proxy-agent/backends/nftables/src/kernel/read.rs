//! Reads the table of one family back from the kernel.

use std::{net::SocketAddr, sync::Arc};

use proxy_model::{IpFamily, Protocol};

use super::{
    rule_hash::hash_beside,
    shape::Shape,
    socket::{KernelError, Netlink},
};
use crate::{
    TABLE,
    found::{Found, FoundChain, FoundHook},
    key::{Key, Part},
    ruleset::{Value, Verdict},
    sets::{Data, ENDPOINT, Set},
};
use proxy_netlink::{
    attributes::{Attributes, Read},
    nf_tables as abi,
};

/// What is there; `None` if there is no table. Reads again until nothing was changed meanwhile.
pub fn read(netlink: &mut Netlink, family: IpFamily) -> Result<Option<Found>, KernelError> {
    /// Somebody who changes rules all the time need not stop for us: what is written on that ground
    /// is refused by the kernel, and read again.
    const ATTEMPTS: u32 = 10;
    for attempt in 1.. {
        let Some(flags) = netlink.table_flags(family, TABLE)? else {
            return Ok(None);
        };
        let mut found = Found {
            dormant: flags & abi::NFT_TABLE_F_DORMANT != 0,
            ..Found::default()
        };
        if attempt_once(netlink, family, &mut found)?.is_some() || attempt == ATTEMPTS {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Whether the table of this namespace leads connections to `at` somewhere.
pub fn is_programmed(at: SocketAddr, protocol: Protocol) -> bool {
    let family = IpFamily::of(at.ip());
    let key = Key::new()
        .address(at.ip())
        .protocol(protocol)
        .port(at.port());
    let found =
        Netlink::open().and_then(|mut netlink| netlink.element(family, Set::Services, &key));
    matches!(found, Ok(true))
}

fn attempt_once(
    netlink: &mut Netlink,
    family: IpFamily,
    found: &mut Found,
) -> Result<Option<()>, KernelError> {
    let ours = |read: &Read<'_>| read.text(abi::NFTA_TABLE_NAME) == Some(TABLE);
    let of_table = |attributes: &mut Attributes<'_>| {
        attributes.text(abi::NFTA_TABLE_NAME, TABLE);
    };
    let chains = netlink.dump(family, abi::NFT_MSG_GETCHAIN, of_table, |read| {
        // Older kernels list the chains of all tables.
        if let Some(name) = read.text(abi::NFTA_CHAIN_NAME).filter(|_| ours(&read)) {
            let rules = Vec::new();
            let hook = hook(&read);
            found.chains.insert(name.into(), FoundChain { hook, rules });
        }
    })?;
    let rules = netlink.dump(family, abi::NFT_MSG_GETRULE, of_table, |read| {
        let Some(chain) = read.text(abi::NFTA_RULE_CHAIN).filter(|_| ours(&read)) else {
            return;
        };
        if let Some(chain) = found.chains.get_mut(chain) {
            let hash = read.get(abi::NFTA_RULE_USERDATA).and_then(hash_beside);
            chain.rules.push(hash);
        }
    })?;
    let mut ranges = Vec::new();
    let sets = netlink.dump(family, abi::NFT_MSG_GETSET, of_table, |read| {
        if let Some(name) = read.text(abi::NFTA_SET_NAME).filter(|_| ours(&read)) {
            let set = Set::ALL.into_iter().find(|set| set.name() == name);
            match set {
                Some(set) if shape(&read) == Shape::of(set, family) => {
                    found.sets.insert(set);
                }
                None if is_ranges(&read, family) => ranges.push(Arc::<str>::from(name)),
                _ => drop(found.others.insert(name.into())),
            }
        }
    })?;
    let mut whole = chains.and(rules).and(sets);
    for set in found.sets.clone() {
        if !set.is_dynamic() {
            whole = whole.and(elements(netlink, family, set, found)?);
        }
    }
    for name in ranges {
        let mut count = 0;
        let of_set = |list: &mut Attributes<'_>| {
            list.text(abi::NFTA_SET_ELEM_LIST_TABLE, TABLE);
            list.text(abi::NFTA_SET_ELEM_LIST_SET, &name);
        };
        let read = netlink.dump(family, abi::NFT_MSG_GETSETELEM, of_set, |read| {
            count += read.nested(abi::NFTA_SET_ELEM_LIST_ELEMENTS).each().count();
        })?;
        whole = whole.and(read);
        found.ranges.insert(name, count);
    }
    Ok(whole)
}

fn hook(read: &Read<'_>) -> Option<FoundHook> {
    let hook = read.nested(abi::NFTA_CHAIN_HOOK);
    let priority = hook.get(abi::NFTA_HOOK_PRIORITY)?.try_into().ok()?;
    Some(FoundHook {
        kind: read.text(abi::NFTA_CHAIN_TYPE)?.to_owned(),
        place: hook.number(abi::NFTA_HOOK_HOOKNUM)?,
        priority: i32::from_be_bytes(priority),
    })
}

fn shape(read: &Read<'_>) -> Shape {
    Shape {
        flags: read.number(abi::NFTA_SET_FLAGS).unwrap_or(0),
        key: read.number(abi::NFTA_SET_KEY_LEN).unwrap_or(0),
        data: match read.number(abi::NFTA_SET_DATA_TYPE) {
            Some(abi::NFT_DATA_VERDICT) | None => 0,
            Some(_) => read.number(abi::NFTA_SET_DATA_LEN).unwrap_or(0),
        },
    }
}

fn is_ranges(read: &Read<'_>, family: IpFamily) -> bool {
    let shape = shape(read);
    shape.flags == abi::NFT_SET_INTERVAL && shape.key as usize == Part::Address.width(family)
}

fn elements(
    netlink: &mut Netlink,
    family: IpFamily,
    set: Set,
    found: &mut Found,
) -> Result<Option<()>, KernelError> {
    let of_set = |list: &mut Attributes<'_>| {
        list.text(abi::NFTA_SET_ELEM_LIST_TABLE, TABLE);
        list.text(abi::NFTA_SET_ELEM_LIST_SET, set.name());
    };
    let length = Part::widths(set.key(), family);
    netlink.dump(family, abi::NFT_MSG_GETSETELEM, of_set, |read| {
        for (_, element) in read.nested(abi::NFTA_SET_ELEM_LIST_ELEMENTS).each() {
            let element = Read(element);
            let key = element
                .nested(abi::NFTA_SET_ELEM_KEY)
                .get(abi::NFTA_DATA_VALUE);
            let key = key
                .filter(|key| key.len() == length)
                .and_then(Key::from_bytes);
            match key.zip(value(&element, set, family)) {
                Some((key, value)) => drop(found.elements.insert((set, key), value)),
                None => drop(found.strange.insert(set)),
            }
        }
    })
}

fn value(element: &Read<'_>, set: Set, family: IpFamily) -> Option<Value> {
    let data = element.nested(abi::NFTA_SET_ELEM_DATA);
    match set.data() {
        Data::None => Some(Value::None),
        Data::Endpoint => {
            let bytes = data.get(abi::NFTA_DATA_VALUE)?;
            let fits = bytes.len() == Part::widths(ENDPOINT, family);
            Some(Value::Endpoint(Key::from_bytes(bytes).filter(|_| fits)?))
        }
        Data::Verdict => {
            let verdict = data.nested(abi::NFTA_DATA_VERDICT);
            let code = verdict.get(abi::NFTA_VERDICT_CODE)?.try_into().ok()?;
            Some(Value::Verdict(match i32::from_be_bytes(code) {
                abi::NF_ACCEPT => Verdict::Accept,
                abi::NF_DROP => Verdict::Drop,
                abi::NFT_RETURN => Verdict::Return,
                abi::NFT_GOTO => Verdict::Goto(verdict.text(abi::NFTA_VERDICT_CHAIN)?.into()),
                _ => return None,
            }))
        }
    }
}
