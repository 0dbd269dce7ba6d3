//! For how long the programs on devices remember connections: what was asked for, and what connection
//! tracking of this host has where nothing was.

use std::{fs, path::Path, time::Duration};

use proxy_backend::Timeouts;

/// Where the kernel tells the timeouts of connection tracking, in seconds, for the network namespace
/// of whoever reads.
const SYSCTL: &str = "/proc/sys/net/netfilter";

/// A timeout of connection tracking.
struct Own {
    /// Its file.
    name: &'static str,
    /// What the kernel has where nobody set it, in seconds.
    default: u32,
}

const TCP_ESTABLISHED: Own = Own {
    name: "nf_conntrack_tcp_timeout_established",
    default: 5 * 24 * 3600,
};
const TCP_CLOSE_WAIT: Own = Own {
    name: "nf_conntrack_tcp_timeout_close_wait",
    default: 60,
};
const UDP: Own = Own {
    name: "nf_conntrack_udp_timeout",
    default: 30,
};
const UDP_STREAM: Own = Own {
    name: "nf_conntrack_udp_timeout_stream",
    default: 120,
};

/// Seconds that a connection may be idle, each above zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Idle {
    /// A connection of TCP.
    pub tcp_established: u32,
    /// One of TCP that one side has closed.
    pub tcp_half_closed: u32,
    /// A flow of UDP without an answer.
    pub udp_unanswered: u32,
    /// One with answers.
    pub udp_answered: u32,
}

impl Idle {
    /// What was asked for, and what this host has now for the rest.
    pub fn on_this_host(asked: &Timeouts) -> Self {
        Self::of(asked, read)
    }

    /// `system` says what is in a file of the host, if it is there: it is not before connection tracking
    /// is loaded.
    fn of(asked: &Timeouts, system: impl Fn(&str) -> Option<String>) -> Self {
        let of_system = |own: &Own| {
            let known = system(own.name).and_then(|text| text.trim().parse().ok());
            known.unwrap_or(own.default).max(1)
        };
        let seconds = |asked: Option<Duration>, own: &Own| {
            asked.map_or_else(|| of_system(own), whole_seconds)
        };
        Self {
            tcp_established: seconds(asked.tcp_established, &TCP_ESTABLISHED),
            tcp_half_closed: seconds(asked.tcp_close_wait, &TCP_CLOSE_WAIT),
            udp_unanswered: seconds(asked.udp, &UDP),
            udp_answered: seconds(asked.udp_stream, &UDP_STREAM),
        }
    }
}

fn read(name: &str) -> Option<String> {
    fs::read_to_string(Path::new(SYSCTL).join(name)).ok()
}

/// A part of a second is a whole one: the programs count seconds, and none would be over at once.
fn whole_seconds(duration: Duration) -> u32 {
    let begun = u64::from(duration.subsec_nanos() > 0);
    let seconds = duration.as_secs().saturating_add(begun);
    u32::try_from(seconds).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_asked_for_is_as_the_system_has_it_or_as_the_kernel_would() {
        let nothing = |_: &str| None;
        let asked = Timeouts::default();
        let expected = Idle {
            tcp_established: 86400,
            tcp_half_closed: 3600,
            udp_unanswered: 30,
            udp_answered: 120,
        };
        assert_eq!(Idle::of(&asked, nothing), expected);
        let system = |name: &str| {
            let text = match name {
                "nf_conntrack_tcp_timeout_established" => "432001\n",
                "nf_conntrack_tcp_timeout_close_wait" => "61\n",
                "nf_conntrack_udp_timeout" => "31\n",
                "nf_conntrack_udp_timeout_stream" => "121\n",
                _ => return None,
            };
            Some(text.to_owned())
        };
        let left = Timeouts {
            tcp_established: None,
            tcp_close_wait: None,
            ..asked
        };
        let expected = Idle {
            tcp_established: 432_001,
            tcp_half_closed: 61,
            udp_unanswered: 31,
            udp_answered: 121,
        };
        assert_eq!(Idle::of(&left, system), expected);
        let expected = Idle {
            tcp_established: 432_000,
            tcp_half_closed: 60,
            udp_unanswered: 30,
            udp_answered: 120,
        };
        assert_eq!(Idle::of(&left, nothing), expected);
        assert_eq!(Idle::of(&left, |_| Some("soon".to_owned())), expected);
        let asked = Timeouts {
            tcp_established: Some(Duration::from_millis(1001)),
            tcp_close_wait: Some(Duration::from_nanos(1)),
            udp: Some(Duration::MAX),
            udp_stream: Some(Duration::from_secs(7)),
        };
        let expected = Idle {
            tcp_established: 2,
            tcp_half_closed: 1,
            udp_unanswered: u32::MAX,
            udp_answered: 7,
        };
        assert_eq!(Idle::of(&asked, system), expected);
    }
}
