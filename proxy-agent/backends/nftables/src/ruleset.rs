//! Rules as data: the few statements that the table is made of. Both what is printed and what the
//! kernel is told comes from these; here is neither.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use ipnet::IpNet;
use proxy_model::Protocol;

use super::{key::Key, sets::Set};

/// What a key is put together from when a packet is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Field {
    /// The source address.
    Source,
    /// The destination address.
    Destination,
    /// The protocol above IP.
    Protocol,
    /// The destination port.
    Port,
    /// A random number, from `offset` to `offset + modulus`.
    Random {
        /// How many there are to choose from; not 0.
        modulus: u32,
        /// The smallest.
        offset: u32,
    },
    /// This number.
    Constant(u32),
}

/// One statement. A rule goes on to the next one only if a condition holds.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Statement {
    /// Only the first packet of a connection.
    New,
    /// Only packets of TCP that open no connection.
    BeginsNothing,
    /// Only what was given another destination.
    Translated,
    /// Only from, or to, this network.
    Within(Field, IpNet),
    /// Only of this protocol.
    Is(Protocol),
    /// Only what arrives on this interface, or on one whose name begins so.
    ArrivedOn {
        /// Name, or how it begins.
        name: Arc<str>,
        /// The latter.
        prefix: bool,
    },
    /// Only what this host sends.
    FromHost,
    /// Only what is in the set.
    In(Vec<Field>, Set),
    /// Only from a source that is not in this set of ranges.
    NotIn(Arc<str>),
    /// Only marked to be masqueraded.
    Marked(u32),
    /// Marks, to be masqueraded.
    Mark(u32),
    /// Takes the mark off.
    Unmark(u32),
    /// Remembers that this client has the endpoint with this number.
    Remember(u32, Duration),
    /// Does what the map has for the packet.
    Dispatch(Vec<Field>, Set),
    /// Gives the connection the destination that the map has for it.
    TranslateBy(Vec<Field>, Set),
    /// Gives the connection this destination.
    TranslateTo(SocketAddr),
    /// Gives the connection an address of this host as its source.
    Masquerade,
    /// Goes through another chain, and comes back.
    Jump(Arc<str>),
    /// Ends.
    Verdict(Verdict),
    /// Drops the packet and tells the sender that nobody listens.
    Reject,
}

/// What becomes of a packet.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verdict {
    /// Nothing more in this hook.
    Accept,
    /// It is gone.
    Drop,
    /// Back to the chain that jumped here.
    Return,
    /// It goes through another chain, and does not come back.
    Goto(Arc<str>),
}

/// Statements, one after the other.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Rule {
    /// What it does.
    pub statements: Vec<Statement>,
    /// Why, for people.
    pub comment: Option<&'static str>,
}

impl Rule {
    /// A rule that needs no explanation.
    pub fn new(statements: impl Into<Vec<Statement>>) -> Self {
        Self {
            statements: statements.into(),
            comment: None,
        }
    }

    /// A rule with an explanation.
    pub fn because(comment: &'static str, statements: impl Into<Vec<Statement>>) -> Self {
        Self {
            statements: statements.into(),
            comment: Some(comment),
        }
    }
}

/// Where the kernel enters a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hook {
    /// `filter` or `nat`.
    pub kind: &'static str,
    /// Which.
    pub place: Place,
    /// Lower ones come first.
    pub priority: i32,
}

/// A hook of netfilter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// What arrives.
    Prerouting,
    /// What this host sends.
    Output,
    /// What leaves.
    Postrouting,
}

/// What an element of a set has beside its key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    /// Nothing.
    None,
    /// A verdict.
    Verdict(Verdict),
    /// An address and a port.
    Endpoint(Key),
}

/// Ranges of addresses under a name that stands for exactly these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranges {
    /// The name of the set.
    pub name: Arc<str>,
    /// Disjoint and in order: the first and the last address of each.
    pub ranges: Vec<(IpAddr, IpAddr)>,
}
