//! Rules as the kernel's expressions: small programs over registers of four bytes.

use proxy_model::{IpFamily, Protocol};

use crate::{
    key,
    ruleset::{Field, Rule, Statement, Verdict},
    sets::Set,
};
use proxy_netlink::{attributes::Attributes, nf_tables as abi};

/// Where the flags are in a header of TCP, in bytes, and some of them (RFC 9293 section 3.1).
const FLAGS_OF_TCP: u32 = 13;
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// Writes the expressions of `rule` as the list that a rule has.
pub fn write(rule: &Rule, family: IpFamily, attributes: &mut Attributes<'_>) {
    let mut writer = Writer { family, attributes };
    for statement in &rule.statements {
        writer.statement(statement);
    }
}

/// Writes the data of an element or of an immediate that is a verdict.
pub fn verdict(attributes: &mut Attributes<'_>, code: i32, chain: Option<&str>) {
    attributes.nested(abi::NFTA_DATA_VERDICT, |verdict| {
        verdict.bytes(abi::NFTA_VERDICT_CODE, &code.to_be_bytes());
        if let Some(chain) = chain {
            verdict.text(abi::NFTA_VERDICT_CHAIN, chain);
        }
    });
}

/// The kernel's number of a verdict, and the chain that it leads to.
pub fn code(verdict: &Verdict) -> (i32, Option<&str>) {
    match verdict {
        Verdict::Accept => (abi::NF_ACCEPT, None),
        Verdict::Drop => (abi::NF_DROP, None),
        Verdict::Return => (abi::NFT_RETURN, None),
        Verdict::Goto(chain) => (abi::NFT_GOTO, Some(chain)),
    }
}

/// The family's number.
pub const fn nfproto(family: IpFamily) -> u8 {
    match family {
        IpFamily::V4 => abi::NFPROTO_IPV4,
        IpFamily::V6 => abi::NFPROTO_IPV6,
    }
}

struct Writer<'a, 'b> {
    family: IpFamily,
    attributes: &'a mut Attributes<'b>,
}

impl Writer<'_, '_> {
    fn expression(&mut self, name: &str, fill: impl FnOnce(&mut Attributes<'_>)) {
        self.attributes.nested(abi::NFTA_LIST_ELEM, |element| {
            element.text(abi::NFTA_EXPR_NAME, name);
            element.nested(abi::NFTA_EXPR_DATA, fill);
        });
    }

    fn statement(&mut self, statement: &Statement) {
        match statement {
            Statement::New => {
                self.connection(abi::NFT_CT_STATE);
                self.has_bit(abi::CT_STATE_NEW);
            }
            Statement::BeginsNothing => {
                self.is(Protocol::Tcp);
                self.payload(abi::NFT_PAYLOAD_TRANSPORT_HEADER, FLAGS_OF_TCP, 1, 0);
                self.bitwise(&[FIN | SYN | RST | ACK], &[0]);
                self.compare(abi::NFT_CMP_NEQ, &[SYN]);
            }
            Statement::Translated => {
                self.connection(abi::NFT_CT_STATUS);
                self.has_bit(abi::IPS_DST_NAT);
            }
            Statement::Within(field, net) => {
                self.load(*field, 0);
                let (network, mask) = (octets(net.network()), octets(net.netmask()));
                if net.prefix_len() < net.max_prefix_len() {
                    self.bitwise(&mask, &vec![0; mask.len()]);
                }
                self.compare(abi::NFT_CMP_EQ, &network);
            }
            Statement::Is(protocol) => self.is(*protocol),
            Statement::ArrivedOn { name, prefix } => {
                self.meta(abi::NFT_META_IIFNAME, 0);
                let mut bytes = name.as_bytes().to_vec();
                if !prefix {
                    bytes.resize(bytes.len().max(16), 0);
                }
                bytes.truncate(16);
                self.compare(abi::NFT_CMP_EQ, &bytes);
            }
            Statement::FromHost => {
                self.expression("fib", |fib| {
                    fib.number(abi::NFTA_FIB_DREG, abi::NFT_REG32_00);
                    fib.number(abi::NFTA_FIB_RESULT, abi::NFT_FIB_RESULT_ADDRTYPE);
                    fib.number(abi::NFTA_FIB_FLAGS, abi::NFTA_FIB_F_SADDR);
                });
                self.compare(abi::NFT_CMP_EQ, &abi::RTN_LOCAL.to_ne_bytes());
            }
            Statement::In(key, set) => {
                self.key(key);
                self.lookup(set.name(), None, 0);
            }
            Statement::NotIn(ranges) => {
                self.load(Field::Source, 0);
                self.lookup(ranges, None, abi::NFT_LOOKUP_F_INV);
            }
            Statement::Marked(mark) => {
                self.meta(abi::NFT_META_MARK, 0);
                self.has_bit(*mark);
            }
            Statement::Mark(mark) => self.change_mark(!*mark, *mark),
            Statement::Unmark(mark) => self.change_mark(u32::MAX, *mark),
            Statement::Remember(number, timeout) => {
                self.key(&[Field::Source, Field::Constant(*number)]);
                let milliseconds = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
                self.expression("dynset", |dynset| {
                    dynset.text(abi::NFTA_DYNSET_SET_NAME, Set::StickyClients.name());
                    dynset.number(abi::NFTA_DYNSET_OP, abi::NFT_DYNSET_OP_UPDATE);
                    dynset.number(abi::NFTA_DYNSET_SREG_KEY, abi::NFT_REG32_00);
                    dynset.long(abi::NFTA_DYNSET_TIMEOUT, milliseconds);
                });
            }
            Statement::Dispatch(key, set) => {
                self.key(key);
                self.lookup(set.name(), Some(abi::NFT_REG_VERDICT), 0);
            }
            Statement::TranslateBy(key, set) => {
                self.key(key);
                self.lookup(set.name(), Some(abi::NFT_REG32_00), 0);
                self.translate();
            }
            Statement::TranslateTo(endpoint) => {
                self.immediate(abi::NFT_REG32_00, &octets(endpoint.ip()));
                self.immediate(self.port_register(), &endpoint.port().to_be_bytes());
                self.translate();
            }
            Statement::Masquerade => self.expression("masq", |masquerade| {
                masquerade.number(abi::NFTA_MASQ_FLAGS, abi::NF_NAT_RANGE_PROTO_RANDOM_FULLY);
            }),
            Statement::Jump(chain) => self.end(abi::NFT_JUMP, Some(chain)),
            Statement::Verdict(verdict) => {
                let (code, chain) = code(verdict);
                self.end(code, chain);
            }
            Statement::Reject => {
                let code = match self.family {
                    IpFamily::V4 => abi::ICMP_PORT_UNREACH,
                    IpFamily::V6 => abi::ICMPV6_PORT_UNREACH,
                };
                self.expression("reject", |reject| {
                    reject.number(abi::NFTA_REJECT_TYPE, abi::NFT_REJECT_ICMP_UNREACH);
                    reject.bytes(abi::NFTA_REJECT_ICMP_CODE, &[code]);
                });
            }
        }
    }

    fn is(&mut self, protocol: Protocol) {
        self.load(Field::Protocol, 0);
        self.compare(abi::NFT_CMP_EQ, &[key::number(protocol)]);
    }

    /// Loads the fields one after the other into registers.
    fn key(&mut self, fields: &[Field]) {
        let mut word = 0;
        for field in fields {
            self.load(*field, word);
            word += match (field, self.family) {
                (Field::Source | Field::Destination, IpFamily::V6) => 4,
                _ => 1,
            };
        }
    }

    /// Loads a field into the register of the word with this number.
    fn load(&mut self, field: Field, word: u32) {
        let (address, source, destination) = match self.family {
            IpFamily::V4 => (4, 12, 16),
            IpFamily::V6 => (16, 8, 24),
        };
        match field {
            Field::Source => self.payload(abi::NFT_PAYLOAD_NETWORK_HEADER, source, address, word),
            Field::Destination => {
                self.payload(abi::NFT_PAYLOAD_NETWORK_HEADER, destination, address, word);
            }
            Field::Protocol => self.meta(abi::NFT_META_L4PROTO, word),
            // The same place in TCP, UDP and SCTP.
            Field::Port => self.payload(abi::NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2, word),
            Field::Random { modulus, offset } => self.expression("numgen", |numgen| {
                numgen.number(abi::NFTA_NG_DREG, abi::NFT_REG32_00 + word);
                numgen.number(abi::NFTA_NG_MODULUS, modulus);
                numgen.number(abi::NFTA_NG_TYPE, abi::NFT_NG_RANDOM);
                numgen.number(abi::NFTA_NG_OFFSET, offset);
            }),
            Field::Constant(number) => {
                self.meta(abi::NFT_META_MARK, word);
                self.bitwise_at(word, &[0; 4], &number.to_ne_bytes());
            }
        }
    }

    fn payload(&mut self, base: u32, offset: u32, length: u32, word: u32) {
        self.expression("payload", |payload| {
            payload.number(abi::NFTA_PAYLOAD_DREG, abi::NFT_REG32_00 + word);
            payload.number(abi::NFTA_PAYLOAD_BASE, base);
            payload.number(abi::NFTA_PAYLOAD_OFFSET, offset);
            payload.number(abi::NFTA_PAYLOAD_LEN, length);
        });
    }

    fn meta(&mut self, key: u32, word: u32) {
        self.expression("meta", |meta| {
            meta.number(abi::NFTA_META_KEY, key);
            meta.number(abi::NFTA_META_DREG, abi::NFT_REG32_00 + word);
        });
    }

    fn connection(&mut self, key: u32) {
        self.expression("ct", |ct| {
            ct.number(abi::NFTA_CT_KEY, key);
            ct.number(abi::NFTA_CT_DREG, abi::NFT_REG32_00);
        });
    }

    fn bitwise(&mut self, mask: &[u8], xor: &[u8]) {
        self.bitwise_at(0, mask, xor);
    }

    fn bitwise_at(&mut self, word: u32, mask: &[u8], xor: &[u8]) {
        self.expression("bitwise", |bitwise| {
            bitwise.number(abi::NFTA_BITWISE_SREG, abi::NFT_REG32_00 + word);
            bitwise.number(abi::NFTA_BITWISE_DREG, abi::NFT_REG32_00 + word);
            bitwise.number(
                abi::NFTA_BITWISE_LEN,
                u32::try_from(mask.len()).unwrap_or(u32::MAX),
            );
            bitwise.nested(abi::NFTA_BITWISE_MASK, |data| {
                data.bytes(abi::NFTA_DATA_VALUE, mask);
            });
            bitwise.nested(abi::NFTA_BITWISE_XOR, |data| {
                data.bytes(abi::NFTA_DATA_VALUE, xor);
            });
        });
    }

    fn has_bit(&mut self, bit: u32) {
        self.bitwise(&bit.to_ne_bytes(), &[0; 4]);
        self.compare(abi::NFT_CMP_NEQ, &[0; 4]);
    }

    fn change_mark(&mut self, mask: u32, xor: u32) {
        self.meta(abi::NFT_META_MARK, 0);
        self.bitwise(&mask.to_ne_bytes(), &xor.to_ne_bytes());
        self.expression("meta", |meta| {
            meta.number(abi::NFTA_META_KEY, abi::NFT_META_MARK);
            meta.number(abi::NFTA_META_SREG, abi::NFT_REG32_00);
        });
    }

    fn compare(&mut self, operation: u32, data: &[u8]) {
        self.expression("cmp", |cmp| {
            cmp.number(abi::NFTA_CMP_SREG, abi::NFT_REG32_00);
            cmp.number(abi::NFTA_CMP_OP, operation);
            cmp.nested(abi::NFTA_CMP_DATA, |value| {
                value.bytes(abi::NFTA_DATA_VALUE, data);
            });
        });
    }

    fn lookup(&mut self, set: &str, into: Option<u32>, flags: u32) {
        self.expression("lookup", |lookup| {
            lookup.text(abi::NFTA_LOOKUP_SET, set);
            lookup.number(abi::NFTA_LOOKUP_SREG, abi::NFT_REG32_00);
            if let Some(register) = into {
                lookup.number(abi::NFTA_LOOKUP_DREG, register);
            }
            lookup.number(abi::NFTA_LOOKUP_FLAGS, flags);
        });
    }

    fn immediate(&mut self, register: u32, data: &[u8]) {
        self.expression("immediate", |immediate| {
            immediate.number(abi::NFTA_IMMEDIATE_DREG, register);
            immediate.nested(abi::NFTA_IMMEDIATE_DATA, |value| {
                value.bytes(abi::NFTA_DATA_VALUE, data);
            });
        });
    }

    /// The port comes after the address.
    const fn port_register(&self) -> u32 {
        match self.family {
            IpFamily::V4 => abi::NFT_REG32_00 + 1,
            IpFamily::V6 => abi::NFT_REG32_00 + 4,
        }
    }

    fn translate(&mut self) {
        let (family, port) = (nfproto(self.family), self.port_register());
        self.expression("nat", |nat| {
            nat.number(abi::NFTA_NAT_TYPE, abi::NFT_NAT_DNAT);
            nat.number(abi::NFTA_NAT_FAMILY, family.into());
            nat.number(abi::NFTA_NAT_REG_ADDR_MIN, abi::NFT_REG32_00);
            nat.number(abi::NFTA_NAT_REG_PROTO_MIN, port);
        });
    }

    fn end(&mut self, code: i32, chain: Option<&str>) {
        self.expression("immediate", |immediate| {
            immediate.number(abi::NFTA_IMMEDIATE_DREG, abi::NFT_REG_VERDICT);
            immediate.nested(abi::NFTA_IMMEDIATE_DATA, |data| verdict(data, code, chain));
        });
    }
}

fn octets(address: std::net::IpAddr) -> Vec<u8> {
    match address {
        std::net::IpAddr::V4(v4) => v4.octets().to_vec(),
        std::net::IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}
