//! The table in `docs/semantics.md`, section Layers, row by row.

use proxy_model::Protocol::{self, Sctp, Tcp, Udp};
use proxy_tests::{
    Agent, AgentOptions,
    requires::{self, NFTABLES, Need, PRIVILEGED},
};

use super::{
    SUITE,
    clients::{
        Became, Client,
        Client::{Machine, Node, Outside, Pod, Raw, Unseen, UnseenOfNode},
        Clients,
    },
    stage::{
        Dials,
        Dials::{
            ClusterIp, Elsewhere, Empty, ExternalIp, LoadBalancer, Loopback, NodePort, Ranged,
            ToClusterIp, ToNodePort, Unallocated, UnknownPort,
        },
        NODE, Stage, cluster,
    },
};

/// What a row says.
#[derive(Debug, Clone, Copy)]
enum Says {
    /// eBPF decides; the endpoint sees the client.
    Led,
    /// nftables decides; the endpoint sees the client.
    Translated,
    /// The same; the endpoint sees the node.
    Masqueraded,
    /// eBPF leads to another frontend, and nftables translates that; the endpoint sees the client.
    Again,
    /// The same; the endpoint sees the node.
    AgainMasqueraded,
    /// An error at once.
    Refused(&'static str),
    /// Nothing comes back.
    Silence,
}

impl Says {
    const fn of(self, client: Client) -> Became {
        let sees = client.address();
        match self {
            Self::Led => Became::Led { sees },
            Self::Translated => Became::Translated { sees },
            Self::Masqueraded => Became::Translated { sees: NODE },
            Self::Again => Became::LedThenTranslated { sees },
            Self::AgainMasqueraded => Became::LedThenTranslated { sees: NODE },
            Self::Refused(error) => Became::Refused(error),
            Self::Silence => Became::Silence,
        }
    }
}

use Says::{Again, AgainMasqueraded, Led, Masqueraded, Refused, Silence, Translated};

/// Clients, what they dial, and what becomes of it.
type Row = (&'static [Client], &'static [Dials], Says);

const REFUSED: Says = Refused("ECONNREFUSED");
const UNREACHABLE: Says = Refused("EHOSTUNREACH");

/// Processes that hooks see.
const PROCESSES: &[Client] = &[Pod, Node];
/// All whose packets alone are seen.
const PACKETS: &[Client] = &[Unseen, UnseenOfNode, Outside, Raw, Machine];
/// What leads to any endpoint, masqueraded on the packet path.
const EXTERNAL: &[Dials] = &[NodePort, ExternalIp, LoadBalancer];

/// Over TCP and UDP.
const ROWS: &[Row] = &[
    // A process of the node or of a pod.
    (PROCESSES, &[ClusterIp], Led),
    (PROCESSES, EXTERNAL, Led),
    (&[Node], &[Loopback], Led),
    // Without endpoints, or without any that policy allows.
    (PROCESSES, &[Empty], REFUSED),
    (PROCESSES, &[Elsewhere], UNREACHABLE),
    // Source ranges, which the pod is in.
    (&[Pod], &[Ranged], Masqueraded),
    (&[Node], &[Ranged], Silence),
    // What nothing serves.
    (PROCESSES, &[UnknownPort], REFUSED),
    (PROCESSES, &[Unallocated], Silence),
    // A virtual machine, a raw socket, a process outside the served cgroup, a host elsewhere.
    (PACKETS, &[ClusterIp], Translated),
    (PACKETS, EXTERNAL, Masqueraded),
    (&[Unseen, Raw], &[Ranged], Masqueraded),
    (&[UnseenOfNode, Outside, Machine], &[Ranged], Silence),
    (PACKETS, &[Empty, UnknownPort], REFUSED),
    (PACKETS, &[Elsewhere, Unallocated], Silence),
    // An endpoint that is itself a frontend.
    (PROCESSES, &[ToNodePort], AgainMasqueraded),
    (PROCESSES, &[ToClusterIp], Again),
];

/// No socket of this kernel speaks it: those that write packets show what becomes of it.
const OF_SCTP: &[Row] = &[
    (&[Raw, Machine], &[ClusterIp], Translated),
    (&[Raw, Machine], EXTERNAL, Masqueraded),
    (&[Raw], &[Ranged], Masqueraded),
    (&[Machine], &[Ranged], Silence),
];

/// With `masqueradeAll`, over TCP and UDP.
const OF_MASQUERADE_ALL: &[Row] = &[
    // Only packets can be masqueraded.
    (PROCESSES, &[ClusterIp], Masqueraded),
    (PACKETS, &[ClusterIp], Masqueraded),
    (PROCESSES, EXTERNAL, Led),
    (&[Node], &[Loopback], Led),
    (PACKETS, EXTERNAL, Masqueraded),
    // It leaves these to nftables, too, whose error it is.
    (PROCESSES, &[Empty], REFUSED),
    (PROCESSES, &[Elsewhere], Silence),
];

/// Dials all, and tells each row that is not so.
fn hold(clients: &mut Clients<'_>, protocols: &[Protocol], rows: &[Row]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut held = 0;
    for (those, all, says) in rows {
        for (client, dials) in those
            .iter()
            .flat_map(|one| all.iter().map(move |to| (*one, *to)))
        {
            for (protocol, connects) in ways(client, *says, protocols) {
                let expected = says.of(client);
                let became = clients.dial(client, dials, protocol, connects);
                held += 1;
                if became != expected {
                    let how = if connects { ", connected" } else { "" };
                    wrong.push(format!(
                        "{client:?} to {dials:?}/{protocol}{how}: {became:?}, not {expected:?}"
                    ));
                }
            }
        }
    }
    assert!(held >= rows.len());
    wrong
}

/// Each protocol, and whether a socket of UDP connects first.
fn ways(client: Client, says: Says, protocols: &[Protocol]) -> Vec<(Protocol, bool)> {
    let mut ways: Vec<_> = protocols.iter().map(|one| (*one, false)).collect();
    let fails = matches!(says, Refused(_) | Silence);
    if client.writes_packets() {
        return ways;
    }
    ways.push((Udp, true));
    if fails {
        // An unconnected socket is told nothing, and the node's own `send` fails, whatever becomes of
        // the packet.
        let of_node = client.address() == NODE;
        ways.retain(|(protocol, connects)| *protocol == Tcp || *connects && !of_node);
    }
    ways
}

fn agent<'w>(stage: &'w Stage, arguments: &[&str]) -> Agent<'w> {
    let arguments = ["--proxy-mode=auto"].iter().chain(arguments);
    let options = AgentOptions {
        arguments: arguments.map(|one| (*one).to_owned()).collect(),
        ..AgentOptions::default()
    };
    Agent::start(&stage.world, options, &[("cluster.yaml", &*cluster())]).unwrap()
}

fn can_run() -> bool {
    [PRIVILEGED, NFTABLES, &[Need::Tun]]
        .iter()
        .all(|needs| requires::met(SUITE, needs))
}

#[test]
fn each_row_of_the_table_is_so() {
    if !can_run() {
        return;
    }
    let (stage, wire) = Stage::new();
    let agent = agent(&stage, &[]);
    let mut clients = Clients::start(&stage, wire);
    let mut wrong = hold(&mut clients, &[Tcp, Udp], ROWS);
    wrong.extend(hold(&mut clients, &[Sctp], OF_SCTP));
    assert!(wrong.is_empty(), "{wrong:#?}");
    drop(agent);
}

#[test]
fn with_masquerade_all_cluster_ips_are_left_to_the_layer_beneath() {
    if !can_run() {
        return;
    }
    let (stage, wire) = Stage::new();
    let agent = agent(&stage, &["--masquerade-all"]);
    let mut clients = Clients::start(&stage, wire);
    let wrong = hold(&mut clients, &[Tcp, Udp], OF_MASQUERADE_ALL);
    assert!(wrong.is_empty(), "{wrong:#?}");
    drop(agent);
}
