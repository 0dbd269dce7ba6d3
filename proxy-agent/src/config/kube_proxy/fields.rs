//! Every field of `KubeProxyConfiguration`, and of our own section `culvert`: its type, its default, what it may hold
//! and whether Culvert honours it. Reading, defaults, what is refused, the list of what is not honoured, the JSON
//! Schemas and the reference pages all follow from this table. Fields are named as v1alpha1 has them, which is finer:
//! v1alpha2 has one field where v1alpha1 has one in each section (`version`). Fields that mean the same as a flag of
//! a backend are named by that flag alone (`backends`).

use std::sync::LazyLock;

use proxy_backend::Flag;

use super::{backends, version::Version};

/// One field.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Where it is: names joined by dots.
    pub path: &'static str,
    /// What it holds.
    pub kind: FieldKind,
    /// Its default, as a flag would have it.
    pub default: &'static str,
    /// Whether a zero value in a file means the default. It does where kube-proxy's type cannot
    /// tell zero from absent; files that kubeadm writes are full of such zeros.
    pub zero_is_default: bool,
    /// What Culvert does with it.
    pub honoured: Honoured,
    /// The only version that has it; `None` for both.
    pub only: Option<Version>,
}

impl Field {
    /// Whether a zero value of a file says nothing. A boolean has no other value to say the opposite of its default.
    pub(super) fn zero_means_default(&self) -> bool {
        self.zero_is_default && self.kind != FieldKind::Switch
    }

    const fn only(self, version: Version) -> Self {
        Self {
            only: Some(version),
            ..self
        }
    }
}

/// What a field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldKind {
    /// A boolean.
    Switch,
    /// A string.
    Text,
    /// One of these strings: `auto|on|off`; empty means the first.
    Choice(&'static str),
    /// An integer of 32 bits: the least and the greatest.
    Whole(i32, i32),
    /// A number, whole or not.
    Number,
    /// A duration as Go writes it, `1h30m`, `250ms`: not negative, and zero only if this says so.
    Period(MayBeZero),
    /// A list of strings.
    Texts,
    /// Names with booleans.
    Switches,
    /// Names with integers that are not negative.
    Numbers,
    /// Anything; never looked into, nor compared with its default.
    Any,
}

/// Whether a duration of zero can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MayBeZero {
    /// It can.
    Yes,
    /// It cannot.
    No,
}

const LASTING: FieldKind = FieldKind::Period(MayBeZero::No);
const TIMEOUT: FieldKind = FieldKind::Period(MayBeZero::Yes);
const BIT: FieldKind = FieldKind::Whole(0, 31);
/// Those of ours, and those that kube-proxy has on Linux.
const MODES: FieldKind = FieldKind::Choice("|auto|ebpf|iptables|ipvs|nftables");
const COUNT: FieldKind = FieldKind::Whole(0, i32::MAX);

impl FieldKind {
    /// How it is called in messages and on the reference page.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Switch => "boolean",
            Self::Text | Self::Choice(_) => "string",
            Self::Whole(..) => "integer",
            Self::Number => "number",
            Self::Period(_) => "duration",
            Self::Texts => "list of strings",
            Self::Switches => "map of booleans",
            Self::Numbers => "map of integers",
            Self::Any => "any",
        }
    }
}

/// Fields that are about one node. In a file that several share, as in a `ConfigMap`, they would be wrong on all but
/// one; KEP-784 calls them instance-local.
const INSTANCE_LOCAL: [&str; 3] = ["hostnameOverride", "bindAddress", "nodeIPOverride"];

impl Field {
    /// Whether it is about one node, and so nothing that several share.
    pub fn is_instance_local(&self) -> bool {
        INSTANCE_LOCAL.contains(&self.path)
    }
}

/// What Culvert does with a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Honoured {
    /// What it decides.
    Yes(&'static str),
    /// What this flag of a backend does.
    Flag(&'static Flag),
    /// Nothing, and why: logged when the field is set to anything but its default.
    No(&'static str),
}

const OWN_CLIENT: Honoured = Honoured::No("Culvert reads JSON and makes a handful of requests");
const OWN_LOG: Honoured = Honoured::No("`--log-format` and `--log-level` decide");
const MARK: Honoured = Honoured::Yes(
    "the bit of the packet mark that marks packets for masquerading, with a packet backend; \
     read from the section of the selected `mode`",
);
const NO_IPVS: Honoured = Honoured::No("there is no IPVS");
const NO_WINDOWS: Honoured = Honoured::No("for Windows only");
const COALESCED: Honoured =
    Honoured::No("changes that arrive while one is being programmed are joined");
const PERIOD: Honoured = Honoured::Yes("how often the kernel is compared with the desired state");
const MASQUERADE: Honoured = Honoured::Yes(
    "by a packet backend, to which socket hooks leave ClusterIPs then; eBPF alone never masquerades",
);

pub(super) const fn field(
    path: &'static str,
    kind: FieldKind,
    default: &'static str,
    honoured: Honoured,
) -> Field {
    // Only pointers in kube-proxy's type distinguish zero from absent: `pointer` below.
    Field {
        path,
        kind,
        default,
        zero_is_default: true,
        honoured,
        only: None,
    }
}

/// A field where zero is a value of its own, and only `null` means the default.
const fn pointer(
    path: &'static str,
    kind: FieldKind,
    default: &'static str,
    honoured: Honoured,
) -> Field {
    Field {
        zero_is_default: false,
        ..field(path, kind, default, honoured)
    }
}

/// All fields: first those of the table, then those of backends.
pub static FIELDS: LazyLock<Vec<Field>> = LazyLock::new(|| {
    let of_backends = backends::fields(crate::backends::ALL);
    TABLE.iter().copied().chain(of_backends).collect()
});

/// In the order of kube-proxy's documentation.
#[rustfmt::skip]
const TABLE: &[Field] = &[
    field("featureGates", FieldKind::Switches, "", Honoured::No("Culvert has no feature gates")),
    field("clientConnection.kubeconfig", FieldKind::Text, "", Honoured::Yes("how the API server is reached")),
    field("clientConnection.acceptContentTypes", FieldKind::Text, "", OWN_CLIENT),
    field("clientConnection.contentType", FieldKind::Text, "application/vnd.kubernetes.protobuf", OWN_CLIENT),
    field("clientConnection.qps", FieldKind::Number, "5", OWN_CLIENT),
    field("clientConnection.burst", COUNT, "10", OWN_CLIENT),
    field("logging.format", FieldKind::Choice("text|json"), "text", Honoured::No("the log is JSON lines unless it goes to a terminal, and `--log-format` decides")),
    field("logging.flushFrequency", FieldKind::Any, "5s", OWN_LOG),
    field("logging.verbosity", COUNT, "0", Honoured::Yes("what is logged, unless `--log-level` is given: 0 to 3 for info, 4 and 5 for debug, more for trace")),
    field("logging.vmodule", FieldKind::Any, "", OWN_LOG),
    field("logging.options", FieldKind::Any, "", OWN_LOG),
    field("hostnameOverride", FieldKind::Text, "", Honoured::Yes("this node's name")),
    field("bindAddress", FieldKind::Text, "0.0.0.0", Honoured::Yes("an address of this node in place of the first of its family of the Node object: where NodePorts answer with `primary`, and what `loadBalancerSourceRanges` must hold for clients of the node itself. Nothing is bound to it. Its family is also that of the defaults of the two addresses below")).only(Version::V1Alpha1),
    field("nodeIPOverride", FieldKind::Texts, "", Honoured::Yes("addresses of this node, one of each family at most, in place of the first of that family of the Node object: where NodePorts answer with `primary`, and what `loadBalancerSourceRanges` must hold for clients of the node itself")).only(Version::V1Alpha2),
    field("ipFamilyPolicy", FieldKind::Choice("PreferDualStack|SingleStack|RequireDualStack"), "PreferDualStack", Honoured::No("each family that a Service has is served")).only(Version::V1Alpha2),
    field("healthzBindAddress", FieldKind::Text, "0.0.0.0:10256", Honoured::Yes("where /healthz and /livez answer; `[::]:10256` by default where `bindAddress`, which v1alpha1 has, is IPv6")),
    field("metricsBindAddress", FieldKind::Text, "127.0.0.1:10249", Honoured::Yes("where /metrics answers; `[::1]:10249` by default where `bindAddress`, which v1alpha1 has, is IPv6")),
    field("bindAddressHardFail", FieldKind::Switch, "false", Honoured::Yes("exit if one of these cannot be bound, instead of retrying")),
    pointer("configHardFail", FieldKind::Switch, "true", Honoured::Yes("whether a field that is unknown, or said twice, is a mistake; where it is not, it is logged")).only(Version::V1Alpha2),
    field("enableProfiling", FieldKind::Switch, "false", Honoured::Yes("whether `PUT /debug/flags/v` on the metrics port changes the log; there are no profiles")),
    field("showHiddenMetricsForVersion", FieldKind::Text, "", Honoured::No("no metric is hidden")),
    field(MODE, MODES, "", Honoured::Yes("which backends serve: `auto`, none, and kube-proxy's mode `ipvs` mean eBPF over the first packet backend that this host supports; `ebpf` means the same with eBPF required; `nftables` and `iptables` mean that alone. Also which section is read, see above")),
    field("portRange", FieldKind::Text, "", Honoured::No("kube-proxy ignores it too")).only(Version::V1Alpha1),
    field("windowsRunAsService", FieldKind::Switch, "false", NO_WINDOWS),
    pointer("iptables.masqueradeBit", BIT, "14", MARK),
    field("iptables.masqueradeAll", FieldKind::Switch, "false", MASQUERADE),
    pointer("iptables.localhostNodePorts", FieldKind::Switch, "true", Honoured::Yes("whether processes of this node reach NodePorts through loopback addresses, also of IPv6; only in the modes that read this section, and only if `nodePortAddresses` includes them")),
    field("iptables.syncPeriod", LASTING, "30s", PERIOD),
    field("iptables.minSyncPeriod", TIMEOUT, "1s", COALESCED),
    field("ipvs.syncPeriod", LASTING, "30s", PERIOD),
    field("ipvs.minSyncPeriod", TIMEOUT, "0s", COALESCED),
    field("ipvs.scheduler", FieldKind::Text, "", NO_IPVS),
    field("ipvs.excludeCIDRs", FieldKind::Texts, "", NO_IPVS),
    field("ipvs.strictARP", FieldKind::Switch, "false", NO_IPVS),
    field("ipvs.tcpTimeout", TIMEOUT, "0s", NO_IPVS),
    field("ipvs.tcpFinTimeout", TIMEOUT, "0s", NO_IPVS),
    field("ipvs.udpTimeout", TIMEOUT, "0s", NO_IPVS),
    pointer("ipvs.masqueradeBit", BIT, "14", MARK).only(Version::V1Alpha2),
    pointer("nftables.masqueradeBit", BIT, "14", MARK),
    field("nftables.masqueradeAll", FieldKind::Switch, "false", MASQUERADE),
    field("nftables.syncPeriod", LASTING, "30s", PERIOD),
    field("nftables.minSyncPeriod", TIMEOUT, "1s", COALESCED),
    field("winkernel.networkName", FieldKind::Text, "", NO_WINDOWS),
    field("winkernel.sourceVip", FieldKind::Text, "", NO_WINDOWS),
    field("winkernel.enableDSR", FieldKind::Switch, "false", NO_WINDOWS),
    field("winkernel.rootHnsEndpointName", FieldKind::Text, "", NO_WINDOWS),
    field("winkernel.forwardHealthCheckVip", FieldKind::Switch, "false", NO_WINDOWS),
    field("detectLocalMode", FieldKind::Choice("ClusterCIDR|NodeCIDR|BridgeInterface|InterfaceNamePrefix"), "ClusterCIDR", Honoured::Yes("how packets from pods are recognised; the packet backend masquerades other packets to ClusterIPs, and lets recognised ones reach any endpoint where externalTrafficPolicy is Local")),
    field("detectLocal.bridgeInterface", FieldKind::Text, "", Honoured::Yes("the bridge, with `detectLocalMode: BridgeInterface`")),
    field("detectLocal.interfaceNamePrefix", FieldKind::Text, "", Honoured::Yes("the prefix, with `detectLocalMode: InterfaceNamePrefix`")),
    field("clusterCIDR", FieldKind::Text, "", Honoured::Yes("addresses of all pods, one CIDR or one per family, with `detectLocalMode: ClusterCIDR`")),
    field("nodePortAddresses", FieldKind::Texts, "", Honoured::Yes("where NodePorts and health check node ports answer: `primary`, or CIDRs; empty means everywhere, or `primary` with `mode: nftables`")),
    pointer("oomScoreAdj", FieldKind::Whole(-1000, 1000), "-999", Honoured::Yes("how likely the kernel is to end the agent when memory runs out")),
    pointer("conntrack.maxPerCore", COUNT, "32768", Honoured::Yes("for how many connections for each CPU `nf_conntrack_max` of the host is raised, to 1048576 at most, and the hash table to a quarter; neither is ever lowered; `0`: neither is touched. Maps of programs on devices have sizes of their own")),
    pointer("conntrack.min", COUNT, "131072", Honoured::Yes("the least that `nf_conntrack_max` is raised to")),
    pointer("conntrack.tcpEstablishedTimeout", TIMEOUT, "24h", Honoured::Yes("how long a connection of TCP may be idle; for programs on devices and as `nf_conntrack_tcp_timeout_established` of the host; `0s`: as that is")),
    pointer("conntrack.tcpCloseWaitTimeout", TIMEOUT, "1h", Honoured::Yes("how long one may be idle that one side has closed; for programs on devices and as `nf_conntrack_tcp_timeout_close_wait` of the host; `0s`: as that is")),
    field("conntrack.tcpBeLiberal", FieldKind::Switch, "false", Honoured::Yes("whether `nf_conntrack_tcp_be_liberal` of the host is set to 1; `false` leaves it as it is. The iptables backend drops packets that conntrack does not know only without it")),
    field("conntrack.udpTimeout", TIMEOUT, "0s", Honoured::Yes("for how long datagrams are remembered that nobody answers; for programs on devices and as `nf_conntrack_udp_timeout` of the host; `0s`: as that is")),
    field("conntrack.udpStreamTimeout", TIMEOUT, "0s", Honoured::Yes("how long a flow of datagrams both ways may be idle; for programs on devices and as `nf_conntrack_udp_timeout_stream` of the host; `0s`: as that is")),
    field("configSyncPeriod", LASTING, "15m", Honoured::No("the API server is watched, and never listed periodically")),
    field(OWN_MODE, MODES, "", Honoured::Yes("what `mode` means, in its place, in a file that kube-proxy reads too: it refuses `mode: ebpf` and `mode: auto`. The section that is read is still that of `mode`, if that is set. Not where `--proxy-mode` is given")),
    field(BACKEND_ORDER, FieldKind::Texts, "", Honoured::Yes("backends in order of preference, such as `[ebpf, nftables]`; others are not used, but for one that the mode requires. Empty means all. Not with a mode that names a packet backend")),
];

/// Which backends serve, and which section is read.
pub const MODE: &str = "mode";
/// Culvert's own section: kube-proxy warns of it, and reads the rest of the file.
pub const OWN_MODE: &str = "culvert.mode";
/// The same.
pub const BACKEND_ORDER: &str = "culvert.backendOrder";

/// The field at `path`.
pub fn at(path: &str) -> Option<&'static Field> {
    FIELDS.iter().find(|field| field.path == path)
}
