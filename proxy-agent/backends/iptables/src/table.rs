//! The tables of iptables that are written, and the chains in them that all Services share. Pure.

/// A table, in the order in which they are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// For a canary (whoever flushes one table mostly flushes all), and for what nobody else may accept.
    Mangle,
    /// Refuses, drops and accepts.
    Filter,
    /// Translates.
    Nat,
}

impl Table {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Mangle, Self::Filter, Self::Nat];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mangle => "mangle",
            Self::Filter => "filter",
            Self::Nat => "nat",
        }
    }

    /// The one with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|table| table.name() == name)
    }
}

/// A chain and its table.
pub type At = (Table, &'static str);

/// Leads frontends in the table nat; refuses ClusterIPs in the table filter.
pub const SERVICES: &str = "KUBE-SERVICES";
/// Leads NodePorts in the table nat; accepts health checks in the table filter.
pub const NODE_PORTS: &str = "KUBE-NODEPORTS";
/// Refuses what is dialled from outside and has no endpoints.
pub const EXTERNAL_SERVICES: &str = "KUBE-EXTERNAL-SERVICES";
/// Refuses NodePorts, where they do not answer on all addresses of the host. kube-proxy has none of this:
/// it refuses them on all addresses.
pub const UNSERVED_NODE_PORTS: &str = "KUBE-UNSERVED-NODEPORTS";
/// Drops what source ranges do not admit.
pub const FIREWALL: &str = "KUBE-PROXY-FIREWALL";
/// Accepts what was translated and is forwarded.
pub const FORWARD: &str = "KUBE-FORWARD";
/// Masquerades what is marked.
pub const POSTROUTING: &str = "KUBE-POSTROUTING";
/// Marks what is to be masqueraded.
pub const MARK: &str = "KUBE-MARK-MASQ";
/// Marks what comes from no pod of this node, where one rule cannot say so.
pub const MARK_FOREIGN: &str = "KUBE-MARK-FOREIGN";
/// Drops what others send to loopback addresses of this host, and in the table mangle what pretends to come from there.
/// kube-proxy has the former in `KUBE-FIREWALL`, which is kubelet's, too.
pub const LOCALNET: &str = "KUBE-LOCALNET";
/// Is empty: when it is gone, somebody has flushed the table.
pub const CANARY: &str = "KUBE-PROXY-CANARY";

/// Where rules of a Service port stand among those of others, in the order in which packets meet them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Index {
    /// Of load-balancer IPs with source ranges.
    Firewall,
    /// ClusterIPs without endpoints.
    Unserved,
    /// External addresses without endpoints.
    UnservedExternal,
    /// NodePorts without endpoints.
    UnservedNodePort,
    /// Frontends with an address.
    Services,
    /// NodePorts.
    NodePorts,
}

impl Index {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Firewall,
        Self::Unserved,
        Self::UnservedExternal,
        Self::UnservedNodePort,
        Self::Services,
        Self::NodePorts,
    ];
}
/// Names of the kernel's counters of packets (nfacct), as kube-proxy has them.
pub mod counters {
    /// Of packets that conntrack takes for none of a connection, dropped where they would be forwarded.
    pub const INVALID: &str = "ct_state_invalid_dropped_pkts";
    /// Of connections that this host opened to NodePorts on 127.0.0.0/8.
    pub const LOCALHOST: &str = "localhost_nps_accepted_pkts";
    /// All of them.
    pub const ALL: [&str; 2] = [INVALID, LOCALHOST];
}

/// What Services need is tried here before it is known to be taken; nothing leads to it.
pub const TRIAL: &str = "CULVERT-TRIAL";
/// Says whose the chains are that have kube-proxy's names. Nothing leads to it.
pub const OWNER: &str = "CULVERT";
