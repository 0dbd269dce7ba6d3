//! What the fields below `conntrack` mean, for the host and for programs on devices.

use std::time::Duration;

use proxy_backend::Timeouts;

use super::complete::Complete;
use crate::host::settings::HostSettings;

/// How long connections may be idle. Zero leaves one to the system.
pub(super) fn timeouts(complete: &Complete) -> Timeouts {
    let of = |name: &str| {
        let period = complete.period(&format!("conntrack.{name}"));
        // A negative one is among the mistakes.
        let period = Duration::try_from(period).unwrap_or_default();
        (!period.is_zero()).then_some(period)
    };
    Timeouts {
        tcp_established: of("tcpEstablishedTimeout"),
        tcp_close_wait: of("tcpCloseWaitTimeout"),
        udp: of("udpTimeout"),
        udp_stream: of("udpStreamTimeout"),
    }
}

/// What the host is set to.
pub(super) fn host(complete: &Complete) -> HostSettings {
    // One below zero is among the mistakes.
    let number = |path| u32::try_from(complete.whole(path)).unwrap_or_default();
    HostSettings {
        max_per_core: number("conntrack.maxPerCore"),
        min: number("conntrack.min"),
        tcp_be_liberal: complete.switch("conntrack.tcpBeLiberal"),
        timeouts: timeouts(complete),
    }
}
