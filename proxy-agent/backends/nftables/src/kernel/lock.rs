//! One agent at a time programs the rules of a network namespace, and one keeps what others have
//! begun to translate there, whatever serves. Who does, owns a table there (Linux 5.12), which nobody else can have, change or flush, and which the kernel takes away with
//! the socket that made it, however its process ends. Only whoever may write rules can make one.
//!
//! A file would do for agents that see the same files only: those in containers do not.

use std::{
    thread,
    time::{Duration, Instant},
};

use nix::unistd::gethostname;
use thiserror::Error;

use super::{
    expressions::nfproto,
    socket::{KernelError, Netlink, question},
    transaction::Transaction,
};
use proxy_backend::OpenError;
use proxy_model::IpFamily;
use proxy_netlink::{message::NLM_F_ACK, nf_tables as abi};

/// Until a holder that was killed has let go. Who opens the backend waits by itself.
const MOMENT: Duration = Duration::from_secs(1);
/// Between two looks at whether it has.
const LOOK: Duration = Duration::from_millis(20);
/// As long as a comment may be that `nft` shows.
const LONGEST: usize = 127;

/// What only one agent does in a network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duty {
    /// It programs the rules.
    Rules,
    /// It keeps connections that others translate, see `keep`.
    Connections,
}

impl Duty {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Rules, Self::Connections];

    /// The table of who does it, in the family of IPv4.
    const fn table(self) -> &'static str {
        match self {
            Self::Rules => "culvert-lock",
            Self::Connections => "culvert-keeper",
        }
    }

    const fn shown_by(self) -> &'static str {
        match self {
            Self::Rules => "table ip culvert-lock",
            Self::Connections => "table ip culvert-keeper",
        }
    }

    const fn does(self) -> &'static str {
        match self {
            Self::Rules => "programs nftables",
            Self::Connections => "keeps connections that others translate",
        }
    }

    /// What to tell of whoever does it.
    pub fn held_by(self, holder: String) -> OpenError {
        OpenError::Held {
            holder,
            does: self.does(),
            shown_by: self.shown_by(),
        }
    }
}

/// Held for as long as this lives.
#[derive(Debug)]
pub struct Lock {
    /// Never used again: the kernel takes the table away when it is closed.
    _socket: Netlink,
}

/// Why the lock could not be taken.
#[derive(Debug, Error)]
pub enum LockError {
    /// Somebody has it.
    #[error("{}", _0.held_by(_1.clone()))]
    Held(Duty, String),
    /// The kernel refused.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

impl Lock {
    /// The same, where kernels have it: before Linux 5.12 no table has an owner.
    pub fn take_if_known(duty: Duty) -> Result<Option<Self>, LockError> {
        match Self::take(duty, MOMENT) {
            Err(LockError::Kernel(error))
                if error.is(libc::EOPNOTSUPP) || error.is(libc::EINVAL) =>
            {
                Ok(None)
            }
            taken => taken.map(Some),
        }
    }

    /// The lock of whoever made the table with this socket.
    pub(super) const fn held_by(socket: Netlink) -> Self {
        Self { _socket: socket }
    }

    /// Takes it in the network namespace of the caller's thread. Waits so long for a holder to go.
    pub fn take(duty: Duty, patience: Duration) -> Result<Self, LockError> {
        /// The holder may go between two of them, and somebody else be quicker.
        const ATTEMPTS: u32 = 5;
        let comment = comment(std::process::id(), &host());
        let mut remove = false;
        let mut attempts = 1;
        loop {
            let error = match attempt(duty, &comment, remove) {
                Ok(socket) => return Ok(Self::held_by(socket)),
                Err(error) => error,
            };
            if let Some(holder) = holder_after(duty, patience)? {
                return Err(LockError::Held(duty, holder));
            }
            // A table without an owner locks nothing: somebody put back what `nft` had listed.
            remove = error.is(libc::EEXIST);
            if !(remove || error.is(libc::EPERM) || error.is(libc::ENOENT)) || attempts == ATTEMPTS
            {
                return Err(LockError::Kernel(error));
            }
            attempts += 1;
        }
    }
}

fn attempt(duty: Duty, comment: &str, remove: bool) -> Result<Netlink, KernelError> {
    let mut socket = Netlink::open()?;
    let mut transaction = Transaction::new(None);
    transaction.about(duty.table());
    if remove {
        transaction.remove_table(IpFamily::V4);
    }
    transaction.own_table(IpFamily::V4, comment);
    let (batch, confirmed) = transaction.finish();
    socket.transact(&batch, confirmed)?;
    Ok(socket)
}

/// Who has this duty in this network namespace, in the holder's own words; `None` if nobody
/// does, or the kernel knows no such tables.
pub fn holder(duty: Duty) -> Result<Option<String>, KernelError> {
    // Without netfilter's sockets, and with those but without nf_tables.
    let unknown = [libc::EPROTONOSUPPORT, libc::EINVAL, libc::EOPNOTSUPP];
    let looked = Netlink::open().and_then(|mut netlink| {
        let family = nfproto(IpFamily::V4);
        let request = question(family, abi::NFT_MSG_GETTABLE, NLM_F_ACK, |table| {
            table.text(abi::NFTA_TABLE_NAME, duty.table());
        });
        netlink.ask(&request, "looking for a table with an owner", |read| {
            // Without an owner it locks nothing.
            let port = read.number(abi::NFTA_TABLE_OWNER)?;
            let comment = read.get(abi::NFTA_TABLE_USERDATA).and_then(comment_of);
            Some(comment.unwrap_or_else(|| format!("the process with netlink port {port}")))
        })
    });
    match looked {
        Err(error) if unknown.iter().any(|errno| error.is(*errno)) => Ok(None),
        looked => looked.map(Option::flatten),
    }
}

/// The same, of one that still does after a moment: a program that an agent was just starting when
/// it was killed has its descriptors until it begins.
pub fn holder_that_stays(duty: Duty) -> Result<Option<String>, KernelError> {
    holder_after(duty, MOMENT)
}

fn holder_after(duty: Duty, patience: Duration) -> Result<Option<String>, KernelError> {
    let end = Instant::now() + patience;
    loop {
        let found = holder(duty)?;
        if found.is_none() || Instant::now() >= end {
            return Ok(found);
        }
        thread::sleep(LOOK);
    }
}

fn host() -> String {
    let name = gethostname().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// What the holder says of itself.
fn comment(process: u32, host: &str) -> String {
    let mut comment = format!("process {process} of {host}");
    let longest = comment.floor_char_boundary(LONGEST);
    comment.truncate(longest);
    comment
}

/// The comment in the data beside a table, as it can be shown: anybody with rights can have written
/// it.
fn comment_of(user_data: &[u8]) -> Option<String> {
    let mut rest = user_data;
    while let [kind, length, after @ ..] = rest {
        let (value, next) = after.split_at_checked(usize::from(*length))?;
        if *kind == abi::NFTNL_UDATA_TABLE_COMMENT {
            let text = value.split(|byte| *byte == 0).next().unwrap_or_default();
            let text = String::from_utf8_lossy(text);
            return Some(text.escape_debug().to_string());
        }
        rest = next;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_holds_it_is_named_and_whatever_is_there_can_be_shown() {
        assert_eq!(comment(7, "node-a"), "process 7 of node-a");
        let long = comment(7, &"n".repeat(300));
        assert_eq!(long.len(), LONGEST);
        assert!(comment(7, &"é".repeat(300)).len() <= LONGEST);
        let user_data = |text: &[u8]| {
            let length = u8::try_from(text.len()).unwrap();
            [&[9, 1, 0, abi::NFTNL_UDATA_TABLE_COMMENT, length][..], text].concat()
        };
        let shown = |text: &[u8]| comment_of(&user_data(text));
        assert_eq!(shown(b"process 7\0").as_deref(), Some("process 7"));
        assert_eq!(shown(b"a\n\x1b[31mb").as_deref(), Some("a\\n\\u{1b}[31mb"));
        assert_eq!(comment_of(&[0, 200, 1]), None);
        assert_eq!(comment_of(&[]), None);
    }
}
