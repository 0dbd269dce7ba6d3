//! A netlink socket that never stands still: every request is told from all others by its number, so
//! that what answers another one is passed over, and no answer is waited for without a bound. Knows
//! the header of a message, not what is in it.
//!
//! The kernel answers within the call that sends a request, or, of a dump, within the one that
//! receives. So what is not there at once never comes, and the bound is met only where answers were
//! lost. A socket that gave an error is not used again (`ENOBUFS`: some answers are missing, others
//! are still to be read).

use std::{hash::BuildHasher as _, io, time::Duration};

use netlink_sys::SocketAddr;
use nix::sys::{
    socket::{setsockopt, sockopt},
    time::TimeVal,
};

/// The kernel's answers have 32 KiB at most.
pub const LONGEST_ANSWER: usize = 64 * 1024;
/// Far above what any answer takes.
const PATIENCE: Duration = Duration::from_secs(5);

/// Length, type, flags, sequence number, port.
pub const HEADER: usize = 16;
const LENGTH: usize = 0;
const SEQUENCE: usize = 8;
/// Messages begin at multiples of this (`NLMSG_ALIGNTO`).
pub const ALIGNED: usize = 4;

/// A socket that talks with the kernel alone, in the network namespace of the thread that opened it.
pub struct Socket {
    inner: netlink_sys::Socket,
    port: u32,
    /// The number of the last message.
    sequence: u32,
}

/// What was asked with one call: tells which answers belong to it.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    port: u32,
    /// The number before that of the first message.
    before: u32,
    messages: u32,
}

impl Asked {
    /// To which of the messages this answers, counted from 1; `None` if it answers something else.
    pub fn which(&self, sequence: u32, port: u32) -> Option<u32> {
        let number = sequence.wrapping_sub(self.before);
        (port == self.port && (1..=self.messages).contains(&number)).then_some(number)
    }
}

impl Socket {
    /// Opens one of a family of netlink.
    pub fn open(protocol: isize) -> io::Result<Self> {
        Self::open_patient(protocol, PATIENCE)
    }

    /// Opens one of which the kernel wants requests to be exactly right; it then lists what they ask
    /// for, and no more.
    pub fn open_strict(protocol: isize) -> io::Result<Self> {
        let socket = Self::open(protocol)?;
        socket.inner.set_netlink_get_strict_chk(true)?;
        Ok(socket)
    }

    fn open_patient(protocol: isize, patience: Duration) -> io::Result<Self> {
        let mut socket = netlink_sys::Socket::new(protocol)?;
        let port = socket.bind_auto()?.port_number();
        // Then the kernel refuses what other processes send here.
        socket.connect(&SocketAddr::new(0, 0))?;
        // Errors that repeat what was asked fill the socket a hundred times as fast.
        socket.set_cap_ack(true)?;
        let seconds = i64::try_from(patience.as_secs()).unwrap_or(i64::MAX);
        let patience = TimeVal::new(seconds, i64::from(patience.subsec_micros()));
        setsockopt(&socket, sockopt::ReceiveTimeout, &patience)?;
        setsockopt(&socket, sockopt::SendTimeout, &patience)?;
        Ok(Self {
            inner: socket,
            port,
            // Any: an answer to an earlier socket of the same port must not fit.
            sequence: some_number(),
        })
    }

    /// Makes room for so many bytes of answers, beyond what the administrator allows.
    pub fn make_room(&self, bytes: usize) -> io::Result<()> {
        Ok(setsockopt(&self.inner, sockopt::RcvBufForce, &bytes)?)
    }

    /// Sends messages, one behind the other. They get their numbers here.
    pub fn send(&mut self, messages: &[u8]) -> io::Result<Asked> {
        // All of it is one datagram to the kernel, however long.
        let room = messages.len().saturating_add(LONGEST_ANSWER);
        if room > LONGEST_ANSWER * 2 {
            setsockopt(&self.inner, sockopt::SndBufForce, &room)?;
        }
        let mut asked = Asked {
            port: self.port,
            before: self.sequence,
            messages: 0,
        };
        let mut numbered = messages.to_vec();
        let mut rest = numbered.as_mut_slice();
        while let Some(length) = word(rest, LENGTH)
            && length as usize >= HEADER
        {
            self.sequence = self.sequence.wrapping_add(1);
            asked.messages += 1;
            rest[SEQUENCE..SEQUENCE + 4].copy_from_slice(&self.sequence.to_ne_bytes());
            let next = (length as usize).next_multiple_of(ALIGNED);
            rest = rest.get_mut(next..).unwrap_or_default();
        }
        let sent = self.inner.send(&numbered, 0)?;
        if sent == numbered.len() {
            Ok(asked)
        } else {
            Err(io::Error::other("the kernel accepted only a part of it"))
        }
    }

    /// The next datagram, in place of what `datagram` held, whatever signals arrive meanwhile.
    pub fn receive(&self, datagram: &mut Vec<u8>) -> io::Result<()> {
        loop {
            datagram.clear();
            datagram.reserve(LONGEST_ANSWER);
            match self.inner.recv(datagram, 0) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        "the kernel's answer was lost: none came in time",
                    ));
                }
                received => return received.map(drop),
            }
        }
    }
}

impl std::fmt::Debug for Socket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Socket")
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

fn some_number() -> u32 {
    let bytes = std::hash::RandomState::new().hash_one(0).to_ne_bytes();
    let [a, b, c, d, ..] = bytes;
    u32::from_ne_bytes([a, b, c, d])
}

fn word(message: &[u8], at: usize) -> Option<u32> {
    let header = message.get(..HEADER)?;
    let bytes = header.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use netlink_sys::protocols::NETLINK_ROUTE;

    use super::*;

    /// `RTM_GETADDR` for a dump of no family that has addresses: answered by its end.
    fn request() -> Vec<u8> {
        let mut message = vec![0; HEADER + 8];
        message[..4].copy_from_slice(&24_u32.to_ne_bytes());
        message[4..6].copy_from_slice(&libc::RTM_GETADDR.to_ne_bytes());
        message[6..8].copy_from_slice(&0x301_u16.to_ne_bytes());
        message
    }

    fn numbers(datagram: &[u8]) -> (u32, u32) {
        (
            word(datagram, SEQUENCE).unwrap(),
            word(datagram, 12).unwrap(),
        )
    }

    #[test]
    fn an_answer_that_never_comes_is_waited_for_no_longer_than_the_bound() {
        let socket = Socket::open_patient(NETLINK_ROUTE, Duration::from_millis(20)).unwrap();
        let error = socket.receive(&mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
    }

    #[test]
    fn answers_are_told_apart_over_the_life_of_a_socket() {
        let mut socket = Socket::open(NETLINK_ROUTE).unwrap();
        let first = socket.send(&request()).unwrap();
        let mut datagram = Vec::new();
        socket.receive(&mut datagram).unwrap();
        let (sequence, port) = numbers(&datagram);
        assert_eq!(first.which(sequence, port), Some(1));
        assert_eq!(first.which(sequence, port.wrapping_add(1)), None);
        let second = socket.send(&request()).unwrap();
        assert_eq!(second.which(sequence, port), None, "of the first");
    }

    #[test]
    fn numbers_go_on_over_the_end_of_the_range() {
        let mut socket = Socket::open(NETLINK_ROUTE).unwrap();
        socket.sequence = u32::MAX - 1;
        let asked = socket.send(&[request(), request(), request()].concat());
        let asked = asked.unwrap();
        let port = socket.port;
        assert_eq!(asked.which(u32::MAX, port), Some(1));
        assert_eq!(asked.which(0, port), Some(2));
        assert_eq!(asked.which(1, port), Some(3));
        assert_eq!(asked.which(2, port), None);
        assert_eq!(asked.which(u32::MAX - 1, port), None);
    }
}
