//! Third step: what the settings mean, with every mistake told at once. The rules are
//! kube-proxy's own; fields that decide nothing are checked too, so that a file which kube-proxy
//! would refuse is not taken for a good one.

use std::{net::IpAddr, path::PathBuf, sync::Arc, time::Duration};

use ipnet::IpNet;
use jiff::SignedDuration;
use proxy_backend::{BackendKind, Timeouts};
use proxy_model::{
    IpFamily, NodePortSelection,
    oracle::{Detector, Traffic},
};

use crate::{backends::ALL, host::settings::HostSettings};

use super::{
    Mistake, Mode, Notice, Settings, address, backends,
    complete::Complete,
    fields::BACKEND_ORDER,
    order,
    typed::{Origin, Typed},
    value::go_text,
};

/// Between two comparisons with the kernel: closer ones would do nothing else.
const SHORTEST_PERIOD: SignedDuration = SignedDuration::from_millis(100);
const HEALTHZ_PORT: u16 = 10256;
const METRICS_PORT: u16 = 10249;

/// The settings, as far as they make sense; `typed` gets the mistakes and notices.
pub(super) fn check(complete: &Complete, typed: &mut Typed) -> Settings {
    let mut check = Check {
        complete,
        mistakes: &mut typed.mistakes,
    };
    let (mode, section) = check.mode();
    let (order, wrong) = order::of(complete.texts(BACKEND_ORDER), mode, ALL);
    for text in wrong {
        check.mistake(BACKEND_ORDER, text);
    }
    let given = backends::given(complete, ALL);
    for (field, text) in backends::wrong(&given, ALL) {
        check.mistake(field, text);
    }
    check.periods(section);
    check.numbers();
    let node_ports = check.lists(section);
    let healthz = check.address("healthzBindAddress", HEALTHZ_PORT);
    let metrics = check.address("metricsBindAddress", METRICS_PORT);
    if complete.text("bindAddress").parse::<IpAddr>().is_err() {
        let text = format!(
            "must be an IP address, but is \"{}\"",
            complete.text("bindAddress")
        );
        check.mistake("bindAddress", text);
    }
    let cluster_cidrs = check.read("clusterCIDR", address::cluster_cidrs);
    let half = half_selected(cluster_cidrs.as_deref().unwrap_or_default(), &node_ports);
    let detector = check.detector(cluster_cidrs.unwrap_or_default());

    let optional = |path| Some(complete.text(path)).filter(|text| !text.is_empty());
    let (masquerade, bit) = match section {
        Section::Nftables => ("nftables.masqueradeAll", "nftables.masqueradeBit"),
        Section::Iptables | Section::Ipvs => ("iptables.masqueradeAll", "iptables.masqueradeBit"),
    };
    let period = format!("{}.syncPeriod", section.name());
    let mut sync_period = complete.period(&period);
    typed.notices.extend(notices(complete, mode));
    if sync_period.is_positive() && sync_period < SHORTEST_PERIOD {
        sync_period = SHORTEST_PERIOD;
        let text = "is less than 100ms, which is used instead";
        typed.notices.push(Notice::new(&period, text.to_owned()));
    }
    typed.notices.extend(half);
    Settings {
        mode,
        order,
        backends: given,
        kubeconfig: optional("clientConnection.kubeconfig").map(PathBuf::from),
        node_name: optional("hostnameOverride").map(str::to_owned),
        healthz,
        metrics,
        hard_fail: complete.switch("bindAddressHardFail"),
        // A negative one is among the mistakes.
        sync_period: Duration::try_from(sync_period).unwrap_or_default(),
        traffic: Traffic {
            detector,
            masquerade_all: complete.switch(masquerade),
        },
        timeouts: timeouts(complete),
        host: host(complete),
        // One out of range is among the mistakes.
        masquerade_mark: u32::try_from(complete.whole(bit))
            .ok()
            .and_then(|bit| 1_u32.checked_shl(bit))
            .unwrap_or_default(),
        node_ports,
        // kube-proxy's other modes never serve them there.
        localhost_node_ports: section == Section::Iptables
            && complete.switch("iptables.localhostNodePorts"),
        oom_score_adj: complete.whole("oomScoreAdj"),
        verbosity: complete.whole("logging.verbosity"),
        notices: Vec::new(),
        effective: complete.to_value(),
    }
}

/// Zero leaves one to the system.
fn timeouts(complete: &Complete) -> Timeouts {
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

/// What the host is set to. Generated files spell the defaults out, and that asks for nothing.
fn host(complete: &Complete) -> HostSettings {
    // One below zero is among the mistakes.
    let number = |path| u32::try_from(complete.whole(path)).unwrap_or_default();
    let (max_per_core, min) = (number("conntrack.maxPerCore"), number("conntrack.min"));
    let tcp_be_liberal = complete.switch("conntrack.tcpBeLiberal");
    let timeouts = timeouts(complete);
    let default = (32768, 131_072, false, Timeouts::default());
    HostSettings {
        max_per_core,
        min,
        tcp_be_liberal,
        timeouts,
        explicit: (max_per_core, min, tcp_be_liberal, timeouts) != default,
    }
}

/// What whoever started the agent should know, although nothing is wrong.
fn notices(complete: &Complete, mode: Mode) -> Vec<Notice> {
    let mut notices = complete.not_honoured();
    if let Mode::Other(mode) = mode {
        let text = format!(
            "\"{mode}\": this version has no such backend; mode auto applies, and the agent reads the sync period, the masquerade bit, masqueradeAll and \
             the NodePort addresses as this mode does"
        );
        notices.push(Notice::new("mode", text));
    }
    let by_cidr = complete.text("detectLocalMode") == "ClusterCIDR"
        && complete.origin("detectLocalMode") != Origin::Default;
    if by_cidr && complete.text("clusterCIDR").is_empty() {
        let text = "ClusterCIDR, but there is no clusterCIDR: no packets are recognised as those \
                    of pods";
        notices.push(Notice::new("detectLocalMode", text.to_owned()));
    }
    notices
}

/// The sections of the file that belong to a mode of kube-proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Section {
    Iptables,
    Ipvs,
    Nftables,
}

impl Section {
    const fn name(self) -> &'static str {
        match self {
            Self::Iptables => "iptables",
            Self::Ipvs => "ipvs",
            Self::Nftables => "nftables",
        }
    }
}

/// The mode that names a backend, or would if this program had it.
fn named(mode: &'static str) -> Mode {
    BackendKind::named(mode, ALL).map_or(Mode::Other(mode), Mode::Only)
}

/// In a cluster of two families, a selection of addresses of one of them leaves the other as it is:
/// seldom what was meant.
fn half_selected(cluster_cidrs: &[IpNet], node_ports: &NodePortSelection) -> Option<Notice> {
    let NodePortSelection::Cidrs(selected) = node_ports else {
        return None;
    };
    let left = cluster_cidrs.iter().map(|cidr| IpFamily::of(cidr.addr()));
    let has = |family| {
        let mut families = selected.iter().map(|cidr| IpFamily::of(cidr.addr()));
        families.any(|one| one == family)
    };
    let family = left.into_iter().find(|family| !has(*family))?;
    let text =
        format!("holds no {family} CIDR: NodePorts answer on every {family} address of this node");
    Some(Notice::new("nodePortAddresses", text))
}

struct Check<'a> {
    complete: &'a Complete,
    mistakes: &'a mut Vec<Mistake>,
}

impl Check<'_> {
    fn mistake(&mut self, path: &str, text: String) {
        let origin = self.complete.origin(path);
        self.mistakes.push(Mistake::new(path, origin, text));
    }

    /// Reads a string field. The error completes the sentence "field: …".
    fn read<T>(&mut self, path: &str, read: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        read(self.complete.text(path))
            .map_err(|text| self.mistake(path, text))
            .ok()
    }

    fn address(&mut self, path: &str, port: u16) -> Option<std::net::SocketAddr> {
        self.read(path, |text| address::bind(text, port)).flatten()
    }

    /// The mode, and the section that is read for it. `ebpf` and `auto` are Culvert's own. kube-proxy's
    /// default mode on Linux is iptables, and that is the section that existing files fill, so it
    /// also stands for eBPF.
    fn mode(&mut self) -> (Mode, Section) {
        match self.complete.text("mode") {
            "" => (Mode::Unset, Section::Iptables),
            "ebpf" => (named("ebpf"), Section::Iptables),
            "auto" => (Mode::Auto, Section::Iptables),
            "iptables" => (named("iptables"), Section::Iptables),
            "ipvs" => (named("ipvs"), Section::Ipvs),
            "nftables" => (named("nftables"), Section::Nftables),
            mode => {
                let text = format!(
                    "must be empty, auto, ebpf, iptables, ipvs or nftables, but is \"{mode}\""
                );
                self.mistake("mode", text);
                (Mode::Unset, Section::Iptables)
            }
        }
    }

    fn periods(&mut self, selected: Section) {
        // kube-proxy checks the section of iptables in every mode.
        for section in [Section::Iptables, Section::Ipvs, Section::Nftables] {
            if section != Section::Iptables && section != selected {
                continue;
            }
            let section = section.name();
            let (least, period) = (
                format!("{section}.minSyncPeriod"),
                format!("{section}.syncPeriod"),
            );
            self.above_zero(&period);
            self.not_negative(&least);
            let (shortest, longest) = (self.complete.period(&least), self.complete.period(&period));
            // Where the short one is left to its default, a sync period below it is a wish to
            // sync more often, and nothing here stops that.
            if shortest > longest && self.complete.origin(&least) != Origin::Default {
                let text = format!(
                    "must be at least {least} ({}), but is {}",
                    go_text(shortest),
                    go_text(longest)
                );
                self.mistake(&period, text);
            }
        }
        self.above_zero("configSyncPeriod");
        for name in [
            "tcpEstablishedTimeout",
            "tcpCloseWaitTimeout",
            "udpTimeout",
            "udpStreamTimeout",
        ] {
            self.not_negative(&format!("conntrack.{name}"));
        }
        for name in ["tcpTimeout", "tcpFinTimeout", "udpTimeout"] {
            self.not_negative(&format!("ipvs.{name}"));
        }
    }

    fn above_zero(&mut self, path: &str) {
        let period = self.complete.period(path);
        if !period.is_positive() {
            let text = format!("must be longer than 0s, but is {}", go_text(period));
            self.mistake(path, text);
        }
    }

    fn not_negative(&mut self, path: &str) {
        let period = self.complete.period(path);
        if period.is_negative() {
            let text = format!("must not be negative, but is {}", go_text(period));
            self.mistake(path, text);
        }
    }

    fn numbers(&mut self) {
        let ranges = [
            ("iptables.masqueradeBit", 0, 31),
            ("nftables.masqueradeBit", 0, 31),
            ("oomScoreAdj", -1000, 1000),
            ("clientConnection.burst", 0, i32::MAX),
            ("conntrack.maxPerCore", 0, i32::MAX),
            ("conntrack.min", 0, i32::MAX),
        ];
        for (path, least, most) in ranges {
            let number = self.complete.whole(path);
            if !(least..=most).contains(&number) {
                let text = format!("must be {least} to {most}, but is {number}");
                self.mistake(path, text);
            }
        }
    }

    fn lists(&mut self, section: Section) -> NodePortSelection {
        let complete = self.complete;
        if section == Section::Ipvs {
            self.cidrs("ipvs.excludeCIDRs", complete.texts("ipvs.excludeCIDRs"));
        }
        match complete.texts("nodePortAddresses") {
            // kube-proxy's default in this mode, and in no other.
            [] if section == Section::Nftables => NodePortSelection::Primary,
            [] => NodePortSelection::All,
            [one] if one == "primary" => NodePortSelection::Primary,
            list if list.iter().any(|one| one == "primary") => {
                self.mistake(
                    "nodePortAddresses",
                    "\"primary\" must stand alone, without CIDRs".to_owned(),
                );
                NodePortSelection::Primary
            }
            list => NodePortSelection::Cidrs(self.cidrs("nodePortAddresses", list)),
        }
    }

    fn cidrs(&mut self, path: &str, list: &[String]) -> Vec<IpNet> {
        let mut cidrs = Vec::new();
        for text in list {
            match address::cidr(text) {
                Ok(cidr) => cidrs.push(cidr),
                Err(text) => self.mistake(path, text),
            }
        }
        cidrs
    }

    fn detector(&mut self, cluster_cidrs: Vec<IpNet>) -> Detector {
        let complete = self.complete;
        match complete.text("detectLocalMode") {
            // Empty can only come from a flag here, and means the default there too.
            "" | "ClusterCIDR" if cluster_cidrs.is_empty() => Detector::None,
            "" | "ClusterCIDR" => Detector::ClusterCidr(cluster_cidrs),
            "NodeCIDR" => Detector::NodeCidr,
            "BridgeInterface" => {
                Detector::BridgeInterface(self.interface("detectLocal.bridgeInterface"))
            }
            "InterfaceNamePrefix" => {
                Detector::InterfaceNamePrefix(self.interface("detectLocal.interfaceNamePrefix"))
            }
            other => {
                let text = format!(
                    "must be ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix, but is \
                     \"{other}\""
                );
                self.mistake("detectLocalMode", text);
                Detector::None
            }
        }
    }

    fn interface(&mut self, path: &str) -> Arc<str> {
        let name = self.complete.text(path);
        if name.is_empty() {
            let mode = self.complete.text("detectLocalMode");
            self.mistake(path, format!("must be set with detectLocalMode {mode}"));
        }
        name.into()
    }
}
