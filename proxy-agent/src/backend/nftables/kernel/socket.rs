//! The socket to `nf_tables`: a batch out and what the kernel says of it, a question out and all that
//! it answers. Knows messages, not what they mean.

use std::{io, ops::ControlFlow};

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};
use nix::sys::socket::{setsockopt, sockopt};
use proxy_model::IpFamily;
use thiserror::Error;

use super::{
    abi,
    expressions::nfproto,
    wire::{Attributes, Head, Message, Messages, Read, each},
};
use crate::backend::nftables::{TABLE, key::Key, sets::Set};

/// What the kernel would not do.
#[derive(Debug, Error)]
#[error("nftables: {what}: {error}")]
pub struct KernelError {
    /// What was attempted.
    pub what: String,
    /// Why not.
    pub error: io::Error,
}

impl KernelError {
    fn new(what: impl Into<String>, error: io::Error) -> Self {
        let what = what.into();
        Self { what, error }
    }

    /// Whether the kernel gave this reason.
    pub fn is(&self, errno: i32) -> bool {
        self.error.raw_os_error() == Some(errno)
    }
}

/// Answers come in pieces of at most this many bytes.
const LONGEST_ANSWER: usize = 64 * 1024;
/// Room for errors that come at once: one for each message that cannot be done.
const ROOM: usize = 4 * 1024 * 1024;

/// A socket of `nf_tables`.
pub struct Netlink {
    socket: Socket,
}

impl std::fmt::Debug for Netlink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Netlink").finish_non_exhaustive()
    }
}

impl Netlink {
    /// Opens one in the network namespace of the caller's thread, where it stays.
    pub fn open() -> Result<Self, KernelError> {
        let failed = |error| KernelError::new("opening a netlink socket", error);
        let mut socket = Socket::new(NETLINK_NETFILTER).map_err(failed)?;
        socket.bind_auto().map_err(failed)?;
        socket.connect(&SocketAddr::new(0, 0)).map_err(failed)?;
        // Without the right to it, what the administrator allows is what there is.
        if let Err(error) = setsockopt(&socket, sockopt::RcvBufForce, &ROOM) {
            tracing::debug!(%error, "room for answers not raised");
        }
        Ok(Self { socket })
    }

    /// Does all of a batch, or nothing: `confirmed` is the number of the message that the kernel
    /// says something about whatever happens.
    pub fn transact(&mut self, batch: &Messages, confirmed: u32) -> Result<(), KernelError> {
        let bytes = batch.as_bytes();
        let what = || format!("sending a transaction of {} bytes", bytes.len());
        // A batch is one message to the kernel, however long.
        let room = bytes.len().saturating_add(LONGEST_ANSWER);
        if room > LONGEST_ANSWER * 2 {
            setsockopt(&self.socket, sockopt::SndBufForce, &room)
                .map_err(|error| KernelError::new(what(), error.into()))?;
        }
        let sent = self.socket.send(bytes, 0);
        let sent = sent.map_err(|error| KernelError::new(what(), error))?;
        if sent != bytes.len() {
            return Err(KernelError::new(what(), io::Error::other("cut short")));
        }
        let mut first: Option<(u32, i32)> = None;
        loop {
            let answer = self.receive("reading what became of a transaction")?;
            let read = each(&answer, |message| {
                if message.kind != abi::NLMSG_ERROR {
                    return ControlFlow::Continue(());
                }
                if let Some(errno) = errno(&message) {
                    first.get_or_insert((message.sequence, errno));
                }
                // The begin of a batch that cannot be taken at all is answered instead of all else.
                let over =
                    message.sequence == confirmed || (message.sequence == 1 && first.is_some());
                if over {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            });
            if read.is_break() {
                break;
            }
        }
        match first {
            None => Ok(()),
            Some((sequence, errno)) => Err(KernelError::new(
                describe(batch, sequence),
                io::Error::from_raw_os_error(errno),
            )),
        }
    }

    /// Everything that the kernel has of `kind`, each message handed to `take`. `None` if it was
    /// changed meanwhile.
    pub fn dump(
        &mut self,
        family: IpFamily,
        kind: u16,
        fill: impl FnOnce(&mut Attributes<'_>),
        mut take: impl FnMut(Read<'_>),
    ) -> Result<Option<()>, KernelError> {
        const WHAT: &str = "reading the table";
        let request = question(nfproto(family), kind, abi::NLM_F_DUMP, fill);
        self.send(&request, WHAT)?;
        let mut whole = true;
        loop {
            let answer = self.receive(WHAT)?;
            let read = each(&answer, |message| {
                whole &= message.flags & abi::NLM_F_DUMP_INTR == 0;
                match message.kind {
                    abi::NLMSG_DONE => ControlFlow::Break(None),
                    abi::NLMSG_ERROR => ControlFlow::Break(errno(&message)),
                    _ => {
                        take(Read(message.attributes));
                        ControlFlow::Continue(())
                    }
                }
            });
            match read {
                ControlFlow::Continue(()) => {}
                ControlFlow::Break(None) => return Ok(whole.then_some(())),
                ControlFlow::Break(Some(libc::EINTR)) => return Ok(None),
                ControlFlow::Break(Some(errno)) => {
                    let error = io::Error::from_raw_os_error(errno);
                    return Err(KernelError::new(WHAT, error));
                }
            }
        }
    }

    /// How often rules were changed in this namespace, by anybody.
    pub fn generation(&mut self) -> Result<u32, KernelError> {
        const WHAT: &str = "asking for the generation of the rules";
        let request = question(0, abi::NFT_MSG_GETGEN, 0, |_| {});
        self.send(&request, WHAT)?;
        let answer = self.receive(WHAT)?;
        let mut generation = None;
        let mut failed = None;
        let walked = each(&answer, |message| {
            match message.kind {
                abi::NLMSG_ERROR => failed = errno(&message),
                _ => generation = Read(message.attributes).number(abi::NFTA_GEN_ID),
            }
            ControlFlow::<()>::Continue(())
        });
        debug_assert!(walked.is_continue());
        generation.ok_or_else(|| {
            let error = failed.map_or_else(
                || io::Error::other("the kernel gave none"),
                io::Error::from_raw_os_error,
            );
            KernelError::new(WHAT, error)
        })
    }

    /// Whether `table` of `family` is there.
    pub fn has_table(&mut self, family: IpFamily, table: &str) -> Result<bool, KernelError> {
        let request = question(
            nfproto(family),
            abi::NFT_MSG_GETTABLE,
            abi::NLM_F_ACK,
            |attributes| {
                attributes.text(abi::NFTA_TABLE_NAME, table);
            },
        );
        self.exists(&request, "looking for the table")
    }

    /// Whether a set of the table has an element.
    pub fn element(&mut self, family: IpFamily, set: Set, key: &Key) -> Result<bool, KernelError> {
        let fill = |list: &mut Attributes<'_>| {
            list.text(abi::NFTA_SET_ELEM_LIST_TABLE, TABLE);
            list.text(abi::NFTA_SET_ELEM_LIST_SET, set.name());
            list.nested(abi::NFTA_SET_ELEM_LIST_ELEMENTS, |list| {
                list.nested(abi::NFTA_LIST_ELEM, |element| {
                    element.nested(abi::NFTA_SET_ELEM_KEY, |data| {
                        data.bytes(abi::NFTA_DATA_VALUE, key.as_bytes());
                    });
                });
            });
        };
        let kind = abi::NFT_MSG_GETSETELEM;
        let request = question(nfproto(family), kind, abi::NLM_F_ACK, fill);
        self.exists(&request, "looking for an element")
    }

    fn exists(&mut self, request: &Messages, what: &str) -> Result<bool, KernelError> {
        self.send(request, what)?;
        loop {
            let answer = self.receive(what)?;
            let read = each(&answer, |message| match message.kind {
                abi::NLMSG_ERROR => ControlFlow::Break(errno(&message)),
                _ => ControlFlow::Continue(()),
            });
            match read {
                ControlFlow::Continue(()) => {}
                ControlFlow::Break(None) => return Ok(true),
                ControlFlow::Break(Some(libc::ENOENT)) => return Ok(false),
                ControlFlow::Break(Some(errno)) => {
                    let error = io::Error::from_raw_os_error(errno);
                    return Err(KernelError::new(what, error));
                }
            }
        }
    }

    fn send(&mut self, request: &Messages, what: &str) -> Result<(), KernelError> {
        let sent = self.socket.send(request.as_bytes(), 0);
        sent.map(drop)
            .map_err(|error| KernelError::new(what, error))
    }

    /// Answers are there when sending returns: the kernel does what it is told at once.
    fn receive(&mut self, what: &str) -> Result<Vec<u8>, KernelError> {
        let mut answer = Vec::with_capacity(LONGEST_ANSWER);
        loop {
            match self.socket.recv(&mut answer, 0) {
                Ok(_) => return Ok(answer),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(KernelError::new(what, error)),
            }
        }
    }
}

fn question(family: u8, kind: u16, flags: u16, fill: impl FnOnce(&mut Attributes<'_>)) -> Messages {
    let mut request = Messages::default();
    let head = Head {
        kind: abi::NFNL_SUBSYS_NFTABLES << 8 | kind,
        flags: abi::NLM_F_REQUEST | flags,
        family,
        resource: 0,
    };
    request.add(head, fill);
    request
}

/// The error that a message tells; `None` for a confirmation.
fn errno(message: &Message<'_>) -> Option<i32> {
    let (code, _) = message.payload.split_first_chunk::<4>()?;
    match i32::from_ne_bytes(*code) {
        0 => None,
        code => Some(-code),
    }
}

/// What the message with this number was to do.
fn describe(batch: &Messages, sequence: u32) -> String {
    let Some((kind, attributes)) = batch.find(sequence) else {
        return "a transaction".to_owned();
    };
    let read = Read(attributes);
    let (verb, name) = match kind & 0xff {
        _ if kind == abi::NFNL_MSG_BATCH_BEGIN => return "a transaction".to_owned(),
        abi::NFT_MSG_NEWTABLE => ("making the table", None),
        abi::NFT_MSG_DELTABLE => ("removing the table", None),
        abi::NFT_MSG_NEWCHAIN => ("making the chain", read.text(abi::NFTA_CHAIN_NAME)),
        abi::NFT_MSG_DELCHAIN => ("removing the chain", read.text(abi::NFTA_CHAIN_NAME)),
        abi::NFT_MSG_NEWRULE => (
            "making a rule of the chain",
            read.text(abi::NFTA_RULE_CHAIN),
        ),
        abi::NFT_MSG_DELRULE => ("emptying the chain", read.text(abi::NFTA_RULE_CHAIN)),
        abi::NFT_MSG_NEWSET => ("making the set", read.text(abi::NFTA_SET_NAME)),
        abi::NFT_MSG_DELSET => ("removing the set", read.text(abi::NFTA_SET_NAME)),
        abi::NFT_MSG_NEWSETELEM => (
            "adding elements to the set",
            read.text(abi::NFTA_SET_ELEM_LIST_SET),
        ),
        abi::NFT_MSG_DELSETELEM => (
            "removing elements from the set",
            read.text(abi::NFTA_SET_ELEM_LIST_SET),
        ),
        _ => ("a transaction", None),
    };
    match name {
        Some(name) => format!("{verb} {name}"),
        None => verb.to_owned(),
    }
}
