//! Flags that kube-proxy has under the same names, and that are honoured. Each that has a field
//! in `KubeProxyConfiguration` overrides it; what the values mean is decided there.

use std::path::PathBuf;

use clap::Args;

use super::{AgentArgs, FIRST, NodeArgs, RunArgs};
use crate::config::kube_proxy::{Given, fields::BACKEND_ORDER};

/// Flags that `--help` shows, without their dashes, and the fields that they set.
#[rustfmt::skip]
pub const FLAGS: &[(&str, &[&str])] = &[
    ("backend-order", &[BACKEND_ORDER]),
    ("bind-address-hard-fail", &["bindAddressHardFail"]),
    ("cluster-cidr", &["clusterCIDR"]),
    ("detect-local-mode", &["detectLocalMode"]),
    ("healthz-bind-address", &["healthzBindAddress"]),
    ("iptables-localhost-nodeports", &["iptables.localhostNodePorts"]),
    ("masquerade-all", &["iptables.masqueradeAll", "nftables.masqueradeAll"]),
    ("metrics-bind-address", &["metricsBindAddress"]),
    ("nodeport-addresses", &["nodePortAddresses"]),
    ("pod-bridge-interface", &["detectLocal.bridgeInterface"]),
    ("pod-interface-name-prefix", &["detectLocal.interfaceNamePrefix"]),
    ("proxy-mode", &["mode"]),
    ("sync-period", &["iptables.syncPeriod", "ipvs.syncPeriod", "nftables.syncPeriod"]),
];

/// How the API server is reached.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Source: manifests, API server")]
pub struct ApiServerArgs {
    /// Kubeconfig file: how to reach the API server [default: the service account, in a pod]
    #[arg(help_heading = FIRST)]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Address of an API server, instead of the one in the kubeconfig; several, separated by commas
    /// or repeated, are tried in turn
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    pub master: Vec<String>,
}

/// True or false, in all the words that kube-proxy takes for them: those of Go.
pub(super) fn switch(text: &str) -> Result<bool, &'static str> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("write true or false"),
    }
}

/// What is served over HTTP.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Health and metrics")]
pub struct ServingArgs {
    /// Address of /healthz and /livez; empty to serve neither [default: 0.0.0.0:10256]
    #[arg(long, value_name = "IP[:PORT]")]
    pub healthz_bind_address: Option<String>,

    /// Address of /metrics; empty not to serve it [default: 127.0.0.1:10249]
    #[arg(long, value_name = "IP[:PORT]")]
    pub metrics_bind_address: Option<String>,

    /// Exit if one of these addresses cannot be bound, instead of retrying
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = switch)]
    pub bind_address_hard_fail: Option<bool>,
}

/// The heading of what decides where traffic goes.
const TRAFFIC: &str = "Traffic";

/// Everything that decides what becomes of traffic, besides the objects of the cluster. The same
/// for an agent that serves and for commands that compute from manifests.
#[derive(Debug, Clone, Default, Args)]
pub struct ModelArgs {
    /// Manifests and node.
    #[command(flatten)]
    pub node: NodeArgs,

    /// `KubeProxyConfiguration` file (v1alpha1 or v1alpha2), see docs/reference/config.md; flags override the
    /// file
    #[arg(help_heading = FIRST)]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Which backends serve: `auto` for eBPF over the first packet backend that this host supports;
    /// `ebpf` for the same with eBPF required; `nftables` or `iptables` for that alone; kube-proxy's mode
    /// `ipvs` is accepted and means `auto` [default: `auto`]
    #[arg(help_heading = FIRST)]
    #[arg(long, value_name = "MODE")]
    pub proxy_mode: Option<String>,

    /// Addresses of all pods: one CIDR, or one per family separated by a comma
    #[arg(help_heading = TRAFFIC, long, value_name = "CIDRS")]
    pub cluster_cidr: Option<String>,

    /// How packets from pods are recognised: `ClusterCIDR`, `NodeCIDR`, `BridgeInterface` or
    /// `InterfaceNamePrefix`; the packet backend masquerades other packets to ClusterIPs
    /// [default: `ClusterCIDR`]
    #[arg(help_heading = TRAFFIC, long, value_name = "MODE")]
    pub detect_local_mode: Option<String>,

    /// Bridge that pods are attached to, for `BridgeInterface`
    #[arg(help_heading = TRAFFIC, long, value_name = "NAME")]
    pub pod_bridge_interface: Option<String>,

    /// How the names of pods' interfaces begin, for `InterfaceNamePrefix`
    #[arg(help_heading = TRAFFIC, long, value_name = "PREFIX")]
    pub pod_interface_name_prefix: Option<String>,

    /// Masquerade all traffic to ClusterIPs: by a packet backend, to which socket hooks leave
    /// ClusterIPs then; eBPF alone never masquerades
    #[arg(help_heading = TRAFFIC, long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = switch)]
    pub masquerade_all: Option<bool>,

    /// Addresses on which NodePorts answer: `primary` for the Node object's first address of each
    /// family, or CIDRs that the addresses must be in, separated by commas or repeated; in a family
    /// without a CIDR, all addresses. The addresses are those of the host's interfaces; commands
    /// that compute from manifests use those of the Node object instead [default: all, or `primary`
    /// with --proxy-mode nftables, as in kube-proxy]
    #[arg(help_heading = TRAFFIC, long, value_name = "CIDRS", value_delimiter = ',')]
    pub nodeport_addresses: Option<Vec<String>>,

    /// Whether processes of this node reach NodePorts through loopback addresses [default: `true`;
    /// never with `primary`, and never in the modes `ipvs` and `nftables`]
    #[arg(help_heading = TRAFFIC, long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = switch)]
    pub iptables_localhost_nodeports: Option<bool>,
}

impl AgentArgs {
    /// Flags that were given and stand for fields of the file. The kubeconfig is not among them:
    /// it decides the source, together with flags that have no field.
    pub fn given(&self) -> Vec<Given> {
        let serving = &self.serving;
        let own = [
            given(
                "healthz-bind-address",
                serving.healthz_bind_address.as_ref(),
            ),
            given(
                "metrics-bind-address",
                serving.metrics_bind_address.as_ref(),
            ),
            given(
                "bind-address-hard-fail",
                serving.bind_address_hard_fail.as_ref(),
            ),
            given("sync-period", self.sync_period.as_ref()),
        ];
        own.into_iter()
            .flatten()
            .chain(self.model.given())
            .chain(self.others.given.iter().cloned())
            .collect()
    }
}

impl ModelArgs {
    /// Flags that were given and stand for fields of the file.
    pub fn given(&self) -> Vec<Given> {
        let node_ports = self.nodeport_addresses.as_ref().map(|list| list.join(","));
        let all = [
            given("proxy-mode", self.proxy_mode.as_ref()),
            given("cluster-cidr", self.cluster_cidr.as_ref()),
            given("detect-local-mode", self.detect_local_mode.as_ref()),
            given("pod-bridge-interface", self.pod_bridge_interface.as_ref()),
            given(
                "pod-interface-name-prefix",
                self.pod_interface_name_prefix.as_ref(),
            ),
            given("masquerade-all", self.masquerade_all.as_ref()),
            given("nodeport-addresses", node_ports.as_ref()),
            given(
                "iptables-localhost-nodeports",
                self.iptables_localhost_nodeports.as_ref(),
            ),
        ];
        all.into_iter().flatten().collect()
    }

    /// Flags that were given and decide nothing where a running agent answers.
    pub fn idle_without_manifests(&self) -> Vec<&'static str> {
        let config = self.config.is_some().then_some("config");
        let given = self.given();
        config
            .into_iter()
            .chain(given.iter().map(|given| given.flag))
            .collect()
    }
}

impl RunArgs {
    /// The same, with those of the dataplane.
    pub fn given(&self) -> Vec<Given> {
        let order = (!self.backend_order.is_empty()).then(|| self.backend_order.join(","));
        let own = given("backend-order", order.as_ref());
        let of_backends = self.backends.of_fields();
        let all = self.agent.given().into_iter().chain(own);
        all.chain(of_backends).collect()
    }
}

/// A flag of [`FLAGS`] that was given.
fn given(flag: &'static str, typed: Option<&impl ToString>) -> Option<Given> {
    let (_, paths) = FLAGS.iter().find(|(name, _)| *name == flag)?;
    typed.map(|typed| Given {
        flag,
        paths,
        text: typed.to_string(),
    })
}
