//! Plans as one batch of messages: the kernel does all of it at once, or nothing.

use proxy_model::IpFamily;

use super::{
    expressions::{self, nfproto},
    rule_hash::{self, rule_hash},
    shape::Shape,
    typeof_data,
};
use crate::{
    TABLE,
    fixed::FixedChain,
    key::{Key, Part},
    plan::Plan,
    ranges,
    ruleset::{Hook, Place, Ranges, Rule, Value},
    sets::{Data, ENDPOINT, Set},
};
use proxy_netlink::{
    attributes::Attributes,
    message::{Head, Messages, NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST},
    nf_tables as abi,
};

/// An attribute has 65,535 bytes at most; an element has far less than what is left here.
const FULL: usize = 60_000;

/// A batch.
#[derive(Debug)]
pub struct Transaction {
    messages: Messages,
    sets: u32,
    table: &'static str,
}

impl Transaction {
    /// An empty one about the table of the backend. With a generation, the kernel takes it only if
    /// nothing was changed since.
    pub fn new(generation: Option<u32>) -> Self {
        let mut messages = Messages::default();
        messages.add(
            Head {
                kind: abi::NFNL_MSG_BATCH_BEGIN,
                flags: NLM_F_REQUEST,
                family: 0,
                resource: abi::NFNL_SUBSYS_NFTABLES,
            },
            |begin| {
                if let Some(generation) = generation {
                    begin.number(abi::NFNL_BATCH_GENID, generation);
                }
            },
        );
        Self {
            messages,
            sets: 0,
            table: TABLE,
        }
    }

    /// What is added from now on is about this table.
    pub fn about(&mut self, table: &'static str) -> &mut Self {
        self.table = table;
        self
    }

    /// The whole batch, and the number of the message that the kernel confirms.
    pub fn finish(mut self) -> (Messages, u32) {
        let last = self.messages.flag_last(NLM_F_ACK);
        self.messages.add(
            Head {
                kind: abi::NFNL_MSG_BATCH_END,
                flags: NLM_F_REQUEST,
                family: 0,
                resource: abi::NFNL_SUBSYS_NFTABLES,
            },
            |_| {},
        );
        (self.messages, last)
    }

    /// All of `plan` for the table of `family`, whose fixed chains are `fixed`.
    pub fn write(&mut self, family: IpFamily, fixed: &[FixedChain], plan: &Plan) {
        if plan.fresh {
            self.remove_table(family);
            self.make_table(family);
            for set in Set::ALL {
                self.set(family, set);
            }
        }
        for ranges in &plan.new_ranges {
            self.ranges(family, ranges);
        }
        for (name, _) in &plan.new_chains {
            let hook = fixed.iter().find(|chain| chain.name == &**name);
            self.chain(family, name, hook.and_then(|chain| chain.hook));
        }
        for (name, rules) in plan.new_chains.iter().chain(&plan.rewritten) {
            // A new one may be one that was left over and could not be deleted yet.
            self.flush(family, name);
            for rule in rules {
                self.rule(family, name, rule);
            }
        }
        self.elements(family, abi::NFT_MSG_DELSETELEM, 0, &plan.removed);
        self.elements(family, abi::NFT_MSG_NEWSETELEM, NLM_F_CREATE, &plan.added);
    }

    /// Removes the table, whether or not it is there.
    pub fn remove_table(&mut self, family: IpFamily) {
        self.make_table(family);
        self.add(family, abi::NFT_MSG_DELTABLE, 0, |_| {});
    }

    /// Makes the table for the socket that sends this: nobody else can change it, and the kernel
    /// takes it away with that socket (Linux 5.12). An error if it is there.
    pub fn own_table(&mut self, family: IpFamily, comment: &str) {
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        self.add(family, abi::NFT_MSG_NEWTABLE, flags, |table| {
            table.number(abi::NFTA_TABLE_FLAGS, abi::NFT_TABLE_F_OWNER);
            let mut comment = comment.as_bytes().to_vec();
            comment.push(0);
            let mut user_data = Vec::new();
            typeof_data::put(&mut user_data, abi::NFTNL_UDATA_TABLE_COMMENT, &comment);
            table.bytes(abi::NFTA_TABLE_USERDATA, &user_data);
        });
    }

    /// Makes the table, or nothing if it is there.
    pub fn make_table(&mut self, family: IpFamily) {
        self.add(family, abi::NFT_MSG_NEWTABLE, NLM_F_CREATE, |_| {});
    }

    /// Removes a chain that nothing leads to, with its rules. Returns the number of the message.
    pub fn remove_chain(&mut self, family: IpFamily, name: &str) -> u32 {
        self.add(family, abi::NFT_MSG_DELCHAIN, 0, |chain| {
            chain.text(abi::NFTA_CHAIN_NAME, name);
        })
    }

    /// Removes a set that nothing uses. Returns the number of the message.
    pub fn remove_set(&mut self, family: IpFamily, name: &str) -> u32 {
        self.add(family, abi::NFT_MSG_DELSET, 0, |set| {
            set.text(abi::NFTA_SET_NAME, name);
        })
    }

    /// Empties a chain.
    pub fn flush(&mut self, family: IpFamily, name: &str) {
        self.add(family, abi::NFT_MSG_DELRULE, 0, |rule| {
            rule.text(abi::NFTA_RULE_CHAIN, name);
        });
    }

    /// Makes a chain, or nothing if it is there.
    pub fn chain(&mut self, family: IpFamily, name: &str, hook: Option<Hook>) {
        self.add(family, abi::NFT_MSG_NEWCHAIN, NLM_F_CREATE, |chain| {
            chain.text(abi::NFTA_CHAIN_NAME, name);
            let Some(hook) = hook else { return };
            chain.nested(abi::NFTA_CHAIN_HOOK, |inner| {
                inner.number(abi::NFTA_HOOK_HOOKNUM, hook_number(hook.place));
                inner.bytes(abi::NFTA_HOOK_PRIORITY, &hook.priority.to_be_bytes());
            });
            chain.number(abi::NFTA_CHAIN_POLICY, abi::NF_ACCEPT.unsigned_abs());
            chain.text(abi::NFTA_CHAIN_TYPE, hook.kind);
        });
    }

    /// Adds a message about the table. Returns its number.
    fn add(
        &mut self,
        family: IpFamily,
        kind: u16,
        flags: u16,
        fill: impl FnOnce(&mut Attributes<'_>),
    ) -> u32 {
        let head = Head {
            kind: abi::NFNL_SUBSYS_NFTABLES << 8 | kind,
            flags: flags | NLM_F_REQUEST,
            family: nfproto(family),
            resource: 0,
        };
        let table = self.table;
        self.messages.add(head, |attributes| {
            // The same number for tables, chains, rules, sets and lists of elements.
            attributes.text(abi::NFTA_TABLE_NAME, table);
            fill(attributes);
        })
    }

    fn set(&mut self, family: IpFamily, set: Set) {
        self.sets += 1;
        let id = self.sets;
        self.add(family, abi::NFT_MSG_NEWSET, NLM_F_CREATE, |new| {
            let shape = Shape::of(set, family);
            new.text(abi::NFTA_SET_NAME, set.name());
            new.number(abi::NFTA_SET_FLAGS, shape.flags);
            new.number(
                abi::NFTA_SET_KEY_TYPE,
                typeof_data::data_types(set.key(), family),
            );
            new.number(abi::NFTA_SET_KEY_LEN, shape.key);
            match set.data() {
                Data::None => {}
                Data::Verdict => new.number(abi::NFTA_SET_DATA_TYPE, abi::NFT_DATA_VERDICT),
                Data::Endpoint => {
                    let types = typeof_data::data_types(ENDPOINT, family);
                    new.number(abi::NFTA_SET_DATA_TYPE, types);
                    new.number(abi::NFTA_SET_DATA_LEN, shape.data);
                }
            }
            if let Some(size) = set.size() {
                new.nested(abi::NFTA_SET_DESC, |inner| {
                    inner.number(abi::NFTA_SET_DESC_SIZE, size);
                });
            }
            new.number(abi::NFTA_SET_ID, id);
            new.bytes(abi::NFTA_SET_USERDATA, &typeof_data::user_data(set, family));
        });
    }

    fn ranges(&mut self, family: IpFamily, ranges: &Ranges) {
        self.sets += 1;
        let id = self.sets;
        self.add(family, abi::NFT_MSG_NEWSET, NLM_F_CREATE, |new| {
            new.text(abi::NFTA_SET_NAME, &ranges.name);
            new.number(abi::NFTA_SET_FLAGS, abi::NFT_SET_INTERVAL);
            let types = typeof_data::data_type(Part::Address, family);
            new.number(abi::NFTA_SET_KEY_TYPE, types);
            let length = Part::Address.width(family);
            new.number(
                abi::NFTA_SET_KEY_LEN,
                u32::try_from(length).unwrap_or(u32::MAX),
            );
            new.number(abi::NFTA_SET_ID, id);
        });
        for ends in ranges::ends(ranges).chunks(512) {
            self.add(family, abi::NFT_MSG_NEWSETELEM, NLM_F_CREATE, |list| {
                list.text(abi::NFTA_SET_ELEM_LIST_SET, &ranges.name);
                list.nested(abi::NFTA_SET_ELEM_LIST_ELEMENTS, |list| {
                    for (address, is_end) in ends {
                        list.nested(abi::NFTA_LIST_ELEM, |element| {
                            write_key(element, &Key::new().address(*address));
                            if *is_end {
                                element.number(
                                    abi::NFTA_SET_ELEM_FLAGS,
                                    abi::NFT_SET_ELEM_INTERVAL_END,
                                );
                            }
                        });
                    }
                });
            });
        }
    }

    /// Adds a rule at the end of a chain.
    pub fn rule(&mut self, family: IpFamily, chain: &str, rule: &Rule) {
        let hash = rule_hash(rule, family);
        self.add(
            family,
            abi::NFT_MSG_NEWRULE,
            NLM_F_CREATE | NLM_F_APPEND,
            |new| {
                new.text(abi::NFTA_RULE_CHAIN, chain);
                new.nested(abi::NFTA_RULE_EXPRESSIONS, |list| {
                    expressions::write(rule, family, list);
                });
                let mut user_data = Vec::new();
                if let Some(comment) = rule.comment {
                    let mut comment = comment.as_bytes().to_vec();
                    comment.push(0);
                    typeof_data::put(&mut user_data, abi::NFTNL_UDATA_RULE_COMMENT, &comment);
                }
                rule_hash::put(&mut user_data, hash);
                new.bytes(abi::NFTA_RULE_USERDATA, &user_data);
            },
        );
    }

    fn elements(&mut self, family: IpFamily, kind: u16, flags: u16, all: &[(Set, Key, Value)]) {
        let mut by_set: Vec<&(Set, Key, Value)> = all.iter().collect();
        by_set.sort_unstable_by_key(|(set, ..)| *set);
        for of_set in by_set.chunk_by(|(one, ..), (other, ..)| one == other) {
            let mut rest = of_set.iter().peekable();
            while rest.peek().is_some() {
                self.add(family, kind, flags, |list| {
                    list.text(abi::NFTA_SET_ELEM_LIST_SET, of_set[0].0.name());
                    list.nested(abi::NFTA_SET_ELEM_LIST_ELEMENTS, |list| {
                        let start = list.written();
                        while list.written() - start < FULL
                            && let Some((_, key, value)) = rest.next()
                        {
                            list.nested(abi::NFTA_LIST_ELEM, |element| {
                                write_key(element, key);
                                write_value(element, value);
                            });
                        }
                    });
                });
            }
        }
    }
}

fn write_key(element: &mut Attributes<'_>, key: &Key) {
    element.nested(abi::NFTA_SET_ELEM_KEY, |data| {
        data.bytes(abi::NFTA_DATA_VALUE, key.as_bytes());
    });
}

fn write_value(element: &mut Attributes<'_>, value: &Value) {
    match value {
        Value::None => {}
        Value::Verdict(verdict) => element.nested(abi::NFTA_SET_ELEM_DATA, |data| {
            let (code, chain) = expressions::code(verdict);
            expressions::verdict(data, code, chain);
        }),
        Value::Endpoint(key) => element.nested(abi::NFTA_SET_ELEM_DATA, |data| {
            data.bytes(abi::NFTA_DATA_VALUE, key.as_bytes());
        }),
    }
}

/// Number of a hook in the kernel.
pub const fn hook_number(place: Place) -> u32 {
    match place {
        Place::Prerouting => abi::NF_INET_PRE_ROUTING,
        Place::Output => abi::NF_INET_LOCAL_OUT,
        Place::Postrouting => abi::NF_INET_POST_ROUTING,
    }
}
