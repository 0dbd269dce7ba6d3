//! Requests to `nf_tables`: a batch out and what the kernel says of it, a question out and all that it
//! answers. Knows messages, not what they mean.

use std::{collections::BTreeMap, io, ops::ControlFlow};

use proxy_model::IpFamily;
use thiserror::Error;

use super::{
    describe::describe,
    expressions::nfproto,
    wire::{NetfilterSocket, Wire},
};
use crate::{TABLE, key::Key, sets::Set};
use proxy_netlink::{
    attributes::{Attributes, Read},
    message::{
        Head, Messages, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NLMSG_ERROR, NetlinkBuffer,
        attributes, end, is_interrupted,
    },
    nf_tables as abi,
};

/// What the kernel would not do.
#[derive(Debug, Error)]
#[error("nftables: {what}: {error}")]
pub struct KernelError {
    /// What was attempted.
    pub what: String,
    /// Why not.
    pub error: io::Error,
}

/// Why the kernel would not, as far as it decides what to do then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Rights are missing. They do not come to a process that runs.
    Rights,
    /// The kernel lacks what was asked for, and says so.
    Missing,
    /// It passes by itself: want of memory, of room or of open files, somebody else at the same
    /// tables, an answer that was lost.
    Busy,
    /// Anything else. What others did to our tables is among it, and so is `ENOENT`: it says that a
    /// kind of rule is not known, and as well that somebody removed what was to be changed.
    Other,
}

impl KernelError {
    fn new(what: impl Into<String>, error: io::Error) -> Self {
        let what = what.into();
        Self { what, error }
    }

    /// The kernel gave this reason.
    pub fn of(what: impl Into<String>, errno: i32) -> Self {
        Self::new(what, io::Error::from_raw_os_error(errno))
    }

    /// What kind of reason it is.
    pub fn cause(&self) -> Cause {
        match self.error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Cause::Rights,
            Some(libc::EOPNOTSUPP | libc::EAFNOSUPPORT | libc::EPROTONOSUPPORT) => Cause::Missing,
            Some(
                libc::ENOMEM
                | libc::ENOBUFS
                | libc::ENOSPC
                | libc::EBUSY
                | libc::EAGAIN
                | libc::EINTR
                | libc::ENFILE
                | libc::EMFILE
                | libc::ERESTART,
            ) => Cause::Busy,
            _ if self.error.kind() == io::ErrorKind::TimedOut => Cause::Busy,
            _ => Cause::Other,
        }
    }

    /// Whether the kernel gave this reason.
    pub fn is(&self, errno: i32) -> bool {
        self.error.raw_os_error() == Some(errno)
    }
}

/// Room for errors that come at once: one for each message that cannot be done.
const ROOM: usize = 4 * 1024 * 1024;

/// A connection to `nf_tables`; after each error another one.
#[derive(Debug)]
pub struct Netlink {
    wire: Box<dyn Wire>,
}

impl Netlink {
    /// Opens one in the network namespace of the caller's thread, where it stays. After an error the
    /// next is opened in that of the thread then.
    pub fn open() -> Result<Self, KernelError> {
        Self::with_room(ROOM)
    }

    /// The same with room for so many bytes of answers.
    pub fn with_room(room: usize) -> Result<Self, KernelError> {
        Self::over(NetfilterSocket::with_room(room))
    }

    /// One over `wire`.
    pub fn over(wire: impl Wire + 'static) -> Result<Self, KernelError> {
        let wire = Box::new(wire);
        let mut netlink = Self { wire };
        netlink.reopen()?;
        Ok(netlink)
    }

    fn reopen(&mut self) -> Result<(), KernelError> {
        let failed = |error| KernelError::new("opening a netlink socket", error);
        self.wire.open().map_err(failed)
    }

    /// Sends `request`, and hands each message that answers it to `take`, with the number of what
    /// it answers, until that says what came of it.
    fn exchange<B>(
        &mut self,
        request: &Messages,
        what: impl Fn() -> String,
        mut take: impl FnMut(u32, &NetlinkBuffer<&[u8]>) -> ControlFlow<B>,
    ) -> Result<B, KernelError> {
        self.reopen()?;
        let mut came = None;
        let exchanged = self.wire.exchange(request, &mut |number, message| {
            take(number, message).map_break(|what| came = Some(what))
        });
        let came = exchanged.and_then(|()| came.ok_or_else(|| io::ErrorKind::UnexpectedEof.into()));
        came.map_err(|error| KernelError::new(what(), error))
    }

    /// Does all of a batch, or nothing: `confirmed` is the number of the message that the kernel
    /// says something about whatever happens.
    pub fn transact(&mut self, batch: &Messages, confirmed: u32) -> Result<(), KernelError> {
        match self.refusals(batch, confirmed)?.first_key_value() {
            None => Ok(()),
            Some((number, errno)) => Err(self.refused(describe(batch, *number), *errno)),
        }
    }

    /// The same, if the kernel refuses some of it: returns the numbers of those messages, each with
    /// the reason. An error where the kernel does not tell.
    pub fn refusals(
        &mut self,
        batch: &Messages,
        confirmed: u32,
    ) -> Result<BTreeMap<u32, i32>, KernelError> {
        let what = || format!("a transaction of {} bytes", batch.as_bytes().len());
        let mut refused = BTreeMap::new();
        self.exchange(batch, what, |number, message| {
            judge(&mut refused, number, errno(message), confirmed)
        })?;
        Ok(refused)
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
        let what = || "reading the table".to_owned();
        let request = question(nfproto(family), kind, NLM_F_DUMP, fill);
        let mut whole = true;
        let ended = self.exchange(&request, what, |_, message| {
            whole &= !is_interrupted(message);
            match end(message) {
                Ok(None) => {
                    take(Read(attributes(message)));
                    ControlFlow::Continue(())
                }
                // With an error in it if there was one on the way.
                _ => ControlFlow::Break(errno(message)),
            }
        })?;
        match ended {
            None => Ok(whole.then_some(())),
            Some(libc::EINTR) => Ok(None),
            Some(errno) => Err(self.refused(what(), errno)),
        }
    }

    /// How often rules were changed in this namespace, by anybody.
    pub fn generation(&mut self) -> Result<u32, KernelError> {
        let what = || "asking for the generation of the rules".to_owned();
        let request = question(0, abi::NFT_MSG_GETGEN, 0, |_| {});
        let answer = self.exchange(&request, what, |_, message| {
            ControlFlow::Break(match message.message_type() {
                NLMSG_ERROR => Err(errno(message)),
                _ => Read(attributes(message))
                    .number(abi::NFTA_GEN_ID)
                    .ok_or(None),
            })
        })?;
        answer.map_err(|errno| self.refused(what(), errno.unwrap_or(libc::EBADMSG)))
    }

    /// Whether `table` of `family` is there.
    pub fn has_table(&mut self, family: IpFamily, table: &str) -> Result<bool, KernelError> {
        Ok(self.table_flags(family, table)?.is_some())
    }

    /// The flags of `table` of `family`; `None` if it is not there.
    pub fn table_flags(
        &mut self,
        family: IpFamily,
        table: &str,
    ) -> Result<Option<u32>, KernelError> {
        let request = question(
            nfproto(family),
            abi::NFT_MSG_GETTABLE,
            NLM_F_ACK,
            |attributes| {
                attributes.text(abi::NFTA_TABLE_NAME, table);
            },
        );
        self.ask(&request, "looking for the table", |read| {
            read.number(abi::NFTA_TABLE_FLAGS).unwrap_or(0)
        })
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
        let request = question(nfproto(family), kind, NLM_F_ACK, fill);
        let found = self.ask(&request, "looking for an element", |_| ())?;
        Ok(found.is_some())
    }

    /// The object that `request`, which wants to be confirmed, asks for, as `take` sees it; `None` if
    /// it is not there.
    pub fn ask<T>(
        &mut self,
        request: &Messages,
        what: &str,
        mut take: impl FnMut(Read<'_>) -> T,
    ) -> Result<Option<T>, KernelError> {
        let mut found = None;
        let ended = self.exchange(
            request,
            || what.to_owned(),
            |_, message| {
                if message.message_type() == NLMSG_ERROR {
                    return ControlFlow::Break(errno(message));
                }
                found = Some(take(Read(attributes(message))));
                ControlFlow::Continue(())
            },
        )?;
        match ended {
            None => Ok(found),
            Some(libc::ENOENT) => Ok(None),
            Some(errno) => Err(self.refused(what, errno)),
        }
    }

    /// The socket is closed with every error, whatever it is.
    fn refused(&mut self, what: impl Into<String>, errno: i32) -> KernelError {
        self.wire.close();
        KernelError::of(what, errno)
    }
}

/// Takes one answer to a batch: what the kernel says of the message with this number. Breaks when
/// there is no more to come.
///
/// Of a batch that cannot be taken at all, or that cannot be committed, the begin is answered: in
/// place of all others, or before them, the confirmation included.
fn judge(
    refused: &mut BTreeMap<u32, i32>,
    number: u32,
    errno: Option<i32>,
    confirmed: u32,
) -> ControlFlow<()> {
    if let Some(errno) = errno {
        refused.entry(number).or_insert(errno);
    }
    if number == confirmed || (number == 1 && errno.is_some()) {
        ControlFlow::Break(())
    } else {
        ControlFlow::Continue(())
    }
}

/// A request about one family.
pub fn question(
    family: u8,
    kind: u16,
    flags: u16,
    fill: impl FnOnce(&mut Attributes<'_>),
) -> Messages {
    let head = Head {
        kind: abi::NFNL_SUBSYS_NFTABLES << 8 | kind,
        flags: flags | NLM_F_REQUEST,
        family,
        resource: 0,
    };
    Messages::one(head, fill)
}

/// The error that a message tells; `None` for a confirmation, and for what is no answer of the kind.
fn errno(message: &NetlinkBuffer<&[u8]>) -> Option<i32> {
    match end(message) {
        Ok(Some(Err(error))) => error.raw_os_error(),
        Ok(Some(Ok(())) | None) => None,
        Err(_) => Some(libc::EBADMSG),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What answers come to, each the number of a message and what is said of it; the last message
    /// is number 5.
    fn judged(answers: &[(u32, Option<i32>)]) -> Option<BTreeMap<u32, i32>> {
        let mut refused = BTreeMap::new();
        let mut answers = answers.iter();
        let ended =
            answers.any(|(number, errno)| judge(&mut refused, *number, *errno, 5).is_break());
        ended.then_some(refused)
    }

    #[test]
    fn a_batch_is_done_if_the_last_message_is_confirmed_and_none_refused() {
        assert_eq!(judged(&[(5, None)]), Some([].into()));
        let two = [(2, libc::ENOENT), (4, libc::EBUSY)];
        let answers = [(2, Some(libc::ENOENT)), (4, Some(libc::EBUSY)), (5, None)];
        assert_eq!(judged(&answers), Some(two.into()));
        assert_eq!(judged(&answers[..2]), None, "the last is still to come");
    }

    #[test]
    fn a_batch_that_is_not_committed_is_refused_though_its_last_message_is_confirmed() {
        let answers = [(1, Some(libc::ENOMEM)), (5, None)];
        assert_eq!(judged(&answers), Some([(1, libc::ENOMEM)].into()));
        assert_eq!(judged(&answers[..1]), Some([(1, libc::ENOMEM)].into()));
    }
}
