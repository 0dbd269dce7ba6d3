//! The table in `docs/semantics.md`, section Layers, row by row.

use proxy_model::Protocol::{self, Sctp, Tcp, Udp};
use proxy_tests::{
    Agent,
    pod::Transport,
    requires::{self, Need},
};

use super::{
    SUITE,
    clients::{
        Became, Client,
        Client::{Machine, Node, Outside, Pod, Raw, Unseen, UnseenOfNode},
        Clients, Way,
    },
    explained::explained,
    rig::{self, options},
    stage::{
        Dials,
        Dials::{
            ClusterIp, Elsewhere, Empty, ExternalIp, LoadBalancer, Loopback, NodePort, Ranged,
            ToClusterIp, ToEmpty, ToNodePort, Unallocated, UnknownPort,
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
    (PROCESSES, &[ToEmpty], REFUSED),
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

/// Dials all, and asks what should become of it. Tells each row that is not so.
fn hold(
    agent: &Agent<'_>,
    clients: &mut Clients<'_>,
    protocols: &[Protocol],
    rows: &[Row],
) -> Vec<String> {
    let mut wrong = Vec::new();
    for (those, all, says) in rows {
        let pairs = those.iter();
        for (client, dials) in pairs.flat_map(|one| all.iter().map(move |to| (*one, *to))) {
            let expected = says.of(client);
            let ways = ways(client, *says, protocols);
            assert!(!ways.is_empty());
            for way in &ways {
                let became = clients.dial(client, dials, *way, expected);
                if became != expected {
                    wrong.push(format!(
                        "{client:?} to {dials:?}, {way:?}: {became:?}, not {expected:?}"
                    ));
                }
            }
            let to = dials.address(ways[0].protocol());
            let explained = explained(agent, client, to, ways[0].protocol());
            if let Err(error) = explained.agrees(client, expected) {
                wrong.push(format!("{client:?} to {dials:?}, explained: {error}"));
            }
        }
    }
    wrong
}

/// The ways in which a client can tell what becomes of what it sends.
fn ways(client: Client, says: Says, protocols: &[Protocol]) -> Vec<Way> {
    let fails = matches!(says, Refused(_) | Silence);
    if client.writes_packets() {
        return protocols.iter().map(|one| Way::Packet(*one)).collect();
    }
    let all = Transport::ALL.iter().map(|(transport, _)| *transport);
    let ways = all.filter(|one| {
        // An unconnected socket is told nothing, and the node's own `send` fails, whatever becomes of
        // the packet.
        let tells = !one.is_udp() || one.is_connected() && client.address() != NODE;
        !fails || tells && !one.is_mapped() && *one != Transport::Http
    });
    ways.map(Way::Socket).collect()
}

fn agent<'w>(stage: &'w Stage, arguments: &[&str]) -> Agent<'w> {
    let files = [("cluster.yaml", &*cluster())];
    Agent::start(&stage.world, options(arguments), &files).unwrap()
}

fn can_run() -> bool {
    rig::can_run() && requires::met(SUITE, &[Need::Tun])
}

#[test]
fn each_row_of_the_table_is_so() {
    if !can_run() {
        return;
    }
    let (stage, wire) = Stage::new();
    let agent = agent(&stage, &[]);
    let mut clients = Clients::start(&stage, wire);
    let mut wrong = hold(&agent, &mut clients, &[Tcp, Udp], ROWS);
    wrong.extend(hold(&agent, &mut clients, &[Sctp], OF_SCTP));
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn with_masquerade_all_cluster_ips_are_left_to_the_layer_beneath() {
    if !can_run() {
        return;
    }
    let (stage, wire) = Stage::new();
    let agent = agent(&stage, &["--masquerade-all"]);
    let mut clients = Clients::start(&stage, wire);
    let wrong = hold(&agent, &mut clients, &[Tcp, Udp], OF_MASQUERADE_ALL);
    assert!(wrong.is_empty(), "{wrong:#?}");
}
