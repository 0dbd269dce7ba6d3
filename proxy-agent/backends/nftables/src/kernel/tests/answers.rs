//! What the kernel answers to a question about its tables.

use proxy_netlink::{
    attributes::Read,
    message::{Head, Messages, NLM_F_DUMP, NLMSG_ERROR, NetlinkBuffer, attributes as of_message},
    nf_tables as abi,
};

use super::tables::{Chain, Given, Set, Table, Tables};

/// The number of the message that is answered, and the answer.
pub type Answer = (u32, Vec<u8>);

const NLMSG_DONE: u16 = 3;
const NLM_F_DUMP_INTR: u16 = 16;
/// Elements that come with one message.
const TOGETHER: usize = 50;

/// How a request ended: with this error, or 0.
pub fn ended(errno: i32) -> Vec<u8> {
    // The request's header comes behind the error.
    end(NLMSG_ERROR, 0, errno, 36)
}

fn end(kind: u16, flags: u16, errno: i32, length: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length);
    bytes.extend(u32::try_from(length).expect("short").to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend((-errno).to_ne_bytes());
    bytes.resize(length, 0);
    bytes
}

/// What `question` is answered; `interrupted`: the tables change while they are read, and
/// half of what is there is left out.
pub fn answers(
    tables: &Tables,
    generation: u32,
    question: &NetlinkBuffer<&[u8]>,
    interrupted: bool,
) -> Vec<Answer> {
    let read = Read(of_message(question));
    let kind = question.message_type() & 0xff;
    if kind == abi::NFT_MSG_GETGEN {
        let given = Given(vec![(abi::NFTA_GEN_ID, generation.to_be_bytes().to_vec())]);
        return vec![(1, object(&given, 0))];
    }
    let name = read.text(abi::NFTA_TABLE_NAME).unwrap_or_default();
    let table = tables.get(&(question.payload()[0], name.to_owned()));
    if question.flags() & NLM_F_DUMP == NLM_F_DUMP {
        let flags = if interrupted { NLM_F_DUMP_INTR } else { 0 };
        let Some(objects) = dumped(table, kind, read) else {
            return vec![(1, ended(libc::ENOENT))];
        };
        let listed = if interrupted {
            objects.len() / 2
        } else {
            objects.len()
        };
        let objects = objects[..listed].iter();
        let objects = objects.map(|given| (1, object(given, flags)));
        let done = (1, end(NLMSG_DONE, flags, 0, 20));
        return objects.chain([done]).collect();
    }
    let found = table.and_then(|table| match kind {
        abi::NFT_MSG_GETTABLE => Some(Given(vec![
            (abi::NFTA_TABLE_NAME, name_of(name)),
            (abi::NFTA_TABLE_FLAGS, table.flags.to_be_bytes().to_vec()),
            (abi::NFTA_TABLE_HANDLE, 1_u64.to_be_bytes().to_vec()),
        ])),
        abi::NFT_MSG_GETCHAIN => {
            let name = read.text(abi::NFTA_CHAIN_NAME)?;
            Some(seen_chain(table, name, table.chains.get(name)?))
        }
        _ => None,
    });
    match found {
        Some(found) => vec![(1, object(&found, 0)), (1, ended(0))],
        None => vec![(1, ended(libc::ENOENT))],
    }
}

fn seen_chain(table: &Table, name: &str, chain: &Chain) -> Given {
    let uses = chain.rules.len() + table.ways_to(name);
    let uses = u32::try_from(uses).expect("few");
    let mut given = chain.given.clone();
    let uses = (abi::NFTA_CHAIN_USE, uses.to_be_bytes().to_vec());
    let handle = (abi::NFTA_CHAIN_HANDLE, 1_u64.to_be_bytes().to_vec());
    given.0.extend([uses, handle]);
    given
}

fn seen_set(set: &Set) -> Given {
    /// `sizeof(struct nft_verdict)`.
    const VERDICT: u32 = 16;
    let mut given = set.given.clone();
    let without = (abi::NFTA_SET_FLAGS, vec![0; 4]);
    given.0.retain(|one| *one != without);
    let verdict = abi::NFT_DATA_VERDICT.to_be_bytes();
    if given.get(abi::NFTA_SET_DATA_TYPE) == Some(&verdict) {
        let length = (abi::NFTA_SET_DATA_LEN, VERDICT.to_be_bytes().to_vec());
        given.0.push(length);
    }
    given
}

fn name_of(name: &str) -> Vec<u8> {
    [name.as_bytes(), &[0]].concat()
}

/// Everything of a kind; `None` where the kernel says that it knows no such table or set.
fn dumped(table: Option<&Table>, kind: u16, read: Read<'_>) -> Option<Vec<Given>> {
    let table = match kind {
        // Of what is not there, there are none.
        abi::NFT_MSG_GETCHAIN | abi::NFT_MSG_GETRULE if table.is_none() => return Some(Vec::new()),
        _ => table?,
    };
    Some(match kind {
        abi::NFT_MSG_GETCHAIN => {
            let chains = table.chains.iter();
            chains
                .map(|(name, chain)| seen_chain(table, name, chain))
                .collect()
        }
        abi::NFT_MSG_GETRULE => {
            let rules = table.chains.values().flat_map(|chain| &chain.rules);
            rules.map(|rule| rule.given.clone()).collect()
        }
        abi::NFT_MSG_GETSET => table.sets.values().map(seen_set).collect(),
        abi::NFT_MSG_GETSETELEM => {
            let set = table.sets.get(read.text(abi::NFTA_SET_ELEM_LIST_SET)?)?;
            let elements: Vec<_> = set.elements.values().collect();
            let lists = elements.chunks(TOGETHER).map(|some| {
                let list = Messages::one(Head::default(), |list| {
                    for element in some {
                        list.nested(abi::NFTA_LIST_ELEM, |inner| {
                            for (kind, value) in &element.given.0 {
                                inner.bytes(*kind, value);
                            }
                        });
                    }
                });
                // Behind the header of the message that it is not.
                let list = list.as_bytes()[20..].to_vec();
                Given(vec![(abi::NFTA_SET_ELEM_LIST_ELEMENTS, list)])
            });
            lists.collect()
        }
        _ => return None,
    })
}

fn object(given: &Given, flags: u16) -> Vec<u8> {
    let head = Head {
        kind: abi::NFNL_SUBSYS_NFTABLES << 8,
        flags,
        ..Head::default()
    };
    let message = Messages::one(head, |attributes| {
        for (kind, value) in &given.0 {
            attributes.bytes(*kind, value);
        }
    });
    message.as_bytes().to_vec()
}
