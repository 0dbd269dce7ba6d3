//! Third step: what the settings mean, with every mistake told at once. The rules are
//! kube-proxy's own; fields that decide nothing are checked too, so that a file which kube-proxy
//! would refuse is not taken for a good one.

use std::{net::IpAddr, path::PathBuf, sync::Arc, time::Duration};

use ipnet::IpNet;
use jiff::SignedDuration;
use proxy_backend::BackendKind;
use proxy_model::{
    IpFamily, NodePortSelection,
    oracle::{Detector, Traffic},
};

use crate::backends::ALL;

use super::{
    Mistake, Mode, Notice, Settings, address, backends,
    complete::{Complete, HEALTHZ_PORT, METRICS_PORT},
    conntrack,
    fields::{BACKEND_ORDER, FIELDS, FieldKind, MODE, MayBeZero, OWN_MODE},
    order,
    period::go_text,
    section::Section,
    typed::{Origin, Typed},
    value::Setting,
};

/// Between two comparisons with the kernel: closer ones would do nothing else.
const SHORTEST_PERIOD: SignedDuration = SignedDuration::from_millis(100);

/// The settings, as far as they make sense; `typed` gets the mistakes and notices.
pub(super) fn check(complete: &Complete, typed: &mut Typed) -> Settings {
    let mut check = Check {
        complete,
        section: complete.section(),
        mistakes: &mut typed.mistakes,
        notices: &mut typed.notices,
    };
    let section = check.section;
    let (mode_at, mode) = mode(complete);
    let (order, wrong) = order::of(complete.texts(BACKEND_ORDER), mode, ALL);
    for text in wrong {
        check.mistake(BACKEND_ORDER, text);
    }
    let given = backends::given(complete, ALL);
    for (field, text) in backends::wrong(&given, ALL) {
        check.mistake(field, text);
    }
    check.bounds();
    check.periods();
    let node_ports = check.lists(section);
    let healthz = check.address("healthzBindAddress", HEALTHZ_PORT);
    let metrics = check.address("metricsBindAddress", METRICS_PORT);
    let node_ips = check.node_ips();
    let cluster_cidrs = check.read("clusterCIDR", address::cluster_cidrs);
    let half = half_selected(cluster_cidrs.as_deref().unwrap_or_default(), &node_ports);
    let detector = check.detector(cluster_cidrs.unwrap_or_default());

    let optional = |path| Some(complete.text(path)).filter(|text| !text.is_empty());
    // IPVS has that of iptables.
    let masquerade = match section {
        Section::Nftables => "nftables.masqueradeAll",
        Section::Iptables | Section::Ipvs => "iptables.masqueradeAll",
    };
    let bit = format!("{}.masqueradeBit", section.name());
    let period = format!("{}.syncPeriod", section.name());
    let mut sync_period = complete.period(&period);
    typed.notices.extend(notices(complete, mode_at, mode));
    if sync_period.is_positive() && sync_period < SHORTEST_PERIOD {
        sync_period = SHORTEST_PERIOD;
        let text = "is less than 100ms, which is used instead";
        let spelled = complete.version.spelled(&period);
        typed.notices.push(Notice::new(spelled, text.to_owned()));
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
        timeouts: conntrack::timeouts(complete),
        host: conntrack::host(complete),
        // One out of range is among the mistakes.
        masquerade_mark: u32::try_from(complete.whole(&bit))
            .ok()
            .and_then(|bit| 1_u32.checked_shl(bit))
            .unwrap_or_default(),
        node_ips,
        node_ports,
        // kube-proxy's other modes never serve them there.
        localhost_node_ports: section == Section::Iptables
            && complete.switch("iptables.localhostNodePorts"),
        oom_score_adj: complete.whole("oomScoreAdj"),
        verbosity: complete.whole("logging.verbosity"),
        notices: Vec::new(),
        effective: complete.to_value(),
        version: complete.version,
    }
}

/// What whoever started the agent should know, although nothing is wrong.
fn notices(complete: &Complete, mode_at: &str, mode: Mode) -> Vec<Notice> {
    let mut notices = complete.not_honoured();
    if let Mode::Other(mode) = mode {
        let text = format!(
            "\"{mode}\": this version has no such backend; mode auto applies, and the agent reads the sync period, the masquerade bit, masqueradeAll and \
             the NodePort addresses as this mode does"
        );
        notices.push(Notice::new(mode_at, text));
    }
    let by_cidr = complete.text("detectLocalMode") == "ClusterCIDR"
        && complete.origin("detectLocalMode") != Origin::Default;
    if by_cidr && complete.text("clusterCIDR").is_empty() {
        let text = format!(
            "ClusterCIDR, but there is no {}: no packets are recognised as those of pods",
            complete.version.spelled("clusterCIDR")
        );
        notices.push(Notice::new("detectLocalMode", text));
    }
    notices
}

/// The field that says the mode, which is ours unless a flag names one, and the mode.
fn mode(complete: &Complete) -> (&'static str, Mode) {
    let is_overruled = matches!(complete.origin(MODE), Origin::Flag(_));
    let path = match complete.text(OWN_MODE) {
        "" => MODE,
        _ if is_overruled => MODE,
        _ => OWN_MODE,
    };
    let mode = match complete.text(path) {
        "auto" => Mode::Auto,
        "ebpf" => named("ebpf"),
        "iptables" => named("iptables"),
        "ipvs" => named("ipvs"),
        "nftables" => named("nftables"),
        _ => Mode::Unset,
    };
    (path, mode)
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

/// What is wrong with a setting of this kind, whatever the others are.
fn out_of_bounds(kind: FieldKind, setting: &Setting) -> Option<String> {
    match (kind, setting) {
        (FieldKind::Whole(least, most), Setting::Whole(number)) => {
            let text = if most == i32::MAX {
                format!("must be at least {least}, but is {number}")
            } else {
                format!("must be {least} to {most}, but is {number}")
            };
            (!(least..=most).contains(number)).then_some(text)
        }
        (FieldKind::Period(MayBeZero::No), Setting::Period(period)) => {
            let text = format!("must be longer than 0s, but is {}", go_text(*period));
            (!period.is_positive()).then_some(text)
        }
        (FieldKind::Period(MayBeZero::Yes), Setting::Period(period)) => {
            let text = format!("must not be negative, but is {}", go_text(*period));
            period.is_negative().then_some(text)
        }
        _ => None,
    }
}

struct Check<'a> {
    complete: &'a Complete,
    section: Section,
    mistakes: &'a mut Vec<Mistake>,
    notices: &'a mut Vec<Notice>,
}

impl Check<'_> {
    /// What is wrong with a field: as for kube-proxy, no reason to refuse the file where no mode reads it.
    fn mistake(&mut self, path: &str, text: String) {
        let spelled = self.complete.version.spelled(path);
        if self.section.reads(path) {
            let origin = self.complete.origin(path);
            self.mistakes.push(Mistake::new(spelled, origin, text));
        } else {
            let text = format!("{text}; the selected mode does not read it");
            self.notices.push(Notice::new(spelled, text));
        }
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

    /// What the table says of each field by itself.
    fn bounds(&mut self) {
        for field in FIELDS.iter() {
            let setting = self.complete.setting(field.path);
            // A default may follow from another field, of which it is said then.
            let is_said = self.complete.origin(field.path) != Origin::Default;
            if let Some(text) = out_of_bounds(field.kind, setting).filter(|_| is_said) {
                self.mistake(field.path, text);
            }
        }
        let hidden = self.complete.text("showHiddenMetricsForVersion");
        let is_version = hidden.split_once('.').is_some_and(|(major, minor)| {
            major.parse::<u8>().is_ok() && minor.parse::<u8>().is_ok()
        });
        if !hidden.is_empty() && !is_version {
            let text = format!("must be a version such as 1.35, but is \"{hidden}\"");
            self.mistake("showHiddenMetricsForVersion", text);
        }
    }

    fn periods(&mut self) {
        for section in [Section::Iptables, Section::Ipvs, Section::Nftables] {
            let section = section.name();
            let (least, period) = (
                format!("{section}.minSyncPeriod"),
                format!("{section}.syncPeriod"),
            );
            let (shortest, longest) = (self.complete.period(&least), self.complete.period(&period));
            // Where the short one is left to its default, a sync period below it is a wish to
            // sync more often, and nothing here stops that.
            if shortest > longest && self.complete.origin(&least) != Origin::Default {
                let least = self.complete.version.spelling_of(&least);
                let text = format!(
                    "must be at least {} ({}), but is {}",
                    least.map_or("the shortest one", |spelling| spelling.path),
                    go_text(shortest),
                    go_text(longest)
                );
                self.mistake(&period, text);
            }
        }
    }

    /// One address, or one of each family: a version has only one of the two fields.
    fn node_ips(&mut self) -> Vec<IpAddr> {
        let complete = self.complete;
        let bound = complete.text("bindAddress").parse::<IpAddr>();
        if bound.is_err() {
            let text = format!(
                "must be an IP address, but is \"{}\"",
                complete.text("bindAddress")
            );
            self.mistake("bindAddress", text);
        }
        let given = complete.texts("nodeIPOverride");
        let parsed: Result<Vec<IpAddr>, _> = given.iter().map(|one| one.parse()).collect();
        let mut all = parsed.unwrap_or_default();
        let is_right = all.len() == given.len()
            && match all[..] {
                [] | [_] => true,
                [one, other] => one.is_ipv4() != other.is_ipv4(),
                _ => false,
            };
        if !is_right {
            let text = format!(
                "must be an IP address, or one of each family, but is {}",
                given.join(", ")
            );
            self.mistake("nodeIPOverride", text);
        }
        all.extend(bound.ok());
        all.retain(|address| !address.is_unspecified());
        all
    }

    fn lists(&mut self, section: Section) -> NodePortSelection {
        let complete = self.complete;
        self.cidrs("ipvs.excludeCIDRs", complete.texts("ipvs.excludeCIDRs"));
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
            "ClusterCIDR" if !cluster_cidrs.is_empty() => Detector::ClusterCidr(cluster_cidrs),
            "NodeCIDR" => Detector::NodeCidr,
            "BridgeInterface" => {
                Detector::BridgeInterface(self.interface("detectLocal.bridgeInterface"))
            }
            "InterfaceNamePrefix" => {
                Detector::InterfaceNamePrefix(self.interface("detectLocal.interfaceNamePrefix"))
            }
            _ => Detector::None,
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
