//! The sections of modes, and which of them is read.

/// The sections of the file that belong to a mode of kube-proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Section {
    Iptables,
    Ipvs,
    Nftables,
}

impl Section {
    /// The one that is read for a mode. kube-proxy's default mode on Linux is iptables, and that is the section that
    /// existing files fill, so it also stands for eBPF.
    pub(super) fn of(mode: &str, own: &str) -> Self {
        match if mode.is_empty() { own } else { mode } {
            "ipvs" => Self::Ipvs,
            "nftables" => Self::Nftables,
            _ => Self::Iptables,
        }
    }

    /// Whether the field at `path` belongs to this section, or to none.
    pub(super) fn reads(self, path: &str) -> bool {
        const OF_MODES: [&str; 4] = ["iptables", "ipvs", "nftables", "winkernel"];
        match path.split_once('.') {
            // Checked in every mode by kube-proxy.
            _ if path == "iptables.masqueradeBit" => true,
            Some((section, _)) => section == self.name() || !OF_MODES.contains(&section),
            None => true,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Iptables => "iptables",
            Self::Ipvs => "ipvs",
            Self::Nftables => "nftables",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_of_kube_proxy_selects_before_ours() {
        for (mode, own, section) in [
            ("", "", Section::Iptables),
            ("auto", "", Section::Iptables),
            ("ipvs", "nftables", Section::Ipvs),
            ("", "nftables", Section::Nftables),
        ] {
            assert_eq!(Section::of(mode, own), section, "{mode} {own}");
        }
    }

    #[test]
    fn a_section_of_another_mode_is_not_read() {
        for path in [
            "oomScoreAdj",
            "conntrack.min",
            "nftables.syncPeriod",
            "iptables.masqueradeBit",
        ] {
            assert!(Section::Nftables.reads(path), "{path}");
        }
        for path in [
            "iptables.syncPeriod",
            "ipvs.scheduler",
            "winkernel.sourceVip",
        ] {
            assert!(!Section::Nftables.reads(path), "{path}");
        }
    }
}
