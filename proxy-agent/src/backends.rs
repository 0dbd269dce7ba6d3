//! The backends of this program: the one place that names them. Who adds one adds it here, to the
//! manifest of this crate, and in a crate of its own.

use proxy_backend::BackendKind;

/// In the order in which mode auto prefers them.
pub const ALL: &[BackendKind] = &[
    #[cfg(feature = "ebpf")]
    BackendKind::of(&proxy_backend_ebpf::Ebpf),
    #[cfg(feature = "nftables")]
    BackendKind::of(&proxy_backend_nftables::Nftables),
    #[cfg(feature = "iptables")]
    BackendKind::of(&proxy_backend_iptables::Iptables),
];

/// Backends that somebody may look for and does not find here, each with the reason.
pub const ABSENT: &[Absent] = &[
    #[cfg(not(feature = "ebpf"))]
    Absent::left_out("ebpf"),
    #[cfg(not(feature = "nftables"))]
    Absent::left_out("nftables"),
    #[cfg(not(feature = "iptables"))]
    Absent::left_out("iptables"),
    Absent::planned("ipvs"),
    Absent::planned("windows"),
];

/// A backend that this program does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Absent {
    /// Its name.
    pub name: &'static str,
    /// Why it cannot be used.
    pub why: &'static str,
}

impl Absent {
    const fn planned(name: &'static str) -> Self {
        let why = "not part of this version";
        Self { name, why }
    }

    #[cfg(not(all(feature = "ebpf", feature = "iptables", feature = "nftables")))]
    const fn left_out(name: &'static str) -> Self {
        let why = "left out of this build (cargo feature)";
        Self { name, why }
    }
}
