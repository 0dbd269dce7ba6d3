//! Names, shapes and default sizes of maps and programs: one table for the programs, the loader,
//! the pin directory and the reference page.

use crate::{
    affinity::{AffinityKey, AffinityValue, ClientKey},
    counters::Counters,
    endpoint::{MemberKey, MemberValue, SetKey, SetValue, SlotKey, SlotValue},
    flow::{Flows, PEERS, Peer},
    frontend::{FrontendKey, FrontendValue},
    node::{NodeAddressKey, NodeAddressValue},
    ranges::{RangeKey, RangeValue},
    service::{ServiceKey, ServiceValue},
    track::{
        ConnectionKey, ConnectionValue, FragmentKey, FragmentValue, Settings, SourceKey,
        SourceValue, reason::Counted,
    },
};

/// What a map is, as the kernel reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapShape {
    /// Name, at most 15 characters.
    pub name: &'static str,
    /// `enum bpf_map_type`.
    pub kind: u32,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// Entries, unless configured otherwise.
    pub entries: u32,
    /// `BPF_F_*` of map creation.
    pub flags: u32,
    /// Which ABI version it belongs to.
    pub group: MapGroup,
    /// Whether its size may be configured.
    pub sizable: bool,
    /// What it holds.
    pub about: &'static str,
}

impl MapShape {
    /// Whether the agent alone decides what is in it, entry by entry.
    pub const fn is_programmed(&self) -> bool {
        matches!(self.kind, HASH | LPM_TRIE)
    }

    /// Whether its entries are found by the longest prefix of what is looked up.
    pub const fn is_trie(&self) -> bool {
        self.kind == LPM_TRIE
    }

    /// Whether the kernel takes the memory for all entries when the map is made.
    pub const fn is_preallocated(&self) -> bool {
        self.flags & NO_PREALLOC == 0
    }

    /// Whether its entries are found by a hash of their keys.
    pub const fn is_hash(&self) -> bool {
        matches!(self.kind, HASH | PERCPU_HASH | LRU_HASH)
    }

    /// Whether each CPU has its own values.
    pub const fn is_per_cpu(&self) -> bool {
        self.kind == PERCPU_ARRAY || self.kind == PERCPU_HASH
    }

    /// Whether the kernel makes room in it by taking away what was not used for longest.
    pub const fn gives_way(&self) -> bool {
        self.kind == LRU_HASH
    }
}

/// Maps that share an ABI version and a pin directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapGroup {
    /// Rebuilt from the desired state at any time.
    Services,
    /// What sockets remember; cannot be rebuilt.
    Flows,
    /// What programs on devices remember; cannot be rebuilt.
    Connections,
}

const HASH: u32 = 1;
const ARRAY: u32 = 2;
const PERCPU_HASH: u32 = 5;
const PERCPU_ARRAY: u32 = 6;
const LRU_HASH: u32 = 9;
const LPM_TRIE: u32 = 11;
const SK_STORAGE: u32 = 24;
/// `BPF_F_NO_PREALLOC`: an empty map costs next to nothing, so sizes can be generous.
pub const NO_PREALLOC: u32 = 1;

/// Default entries of SERVICES. An empty hash map costs 16 bytes for each entry it could hold, so
/// these defaults (twice the largest cluster Kubernetes is tested with) take about 15 MiB.
pub const SERVICES: u32 = 1 << 16;
/// Default entries of FRONTENDS: ClusterIP, NodePort, and two more addresses for each Service port.
pub const FRONTENDS: u32 = 4 * SERVICES;
/// Default entries of SETS: two for each Service port.
pub const SETS: u32 = 2 * SERVICES;
/// Default entries of SLOTS: one for each endpoint of a Service port, two for one that is in both
/// of its sets.
pub const SLOTS: u32 = 1 << 18;
/// Default entries of MEMBERS.
pub const MEMBERS: u32 = SLOTS;

/// Default entries of NODE_ADDRS: a node in IPVS mode had an address for each Service.
pub const NODE_ADDRS: u32 = 1 << 14;
/// Default entries of RANGES: for each Service port in question and family, its source ranges. An
/// empty trie costs nothing.
pub const RANGES: u32 = 1 << 16;
/// Default entries of AFFINITY: for each pod of this node, the Services with session affinity that
/// it uses. The kernel makes room for all of them at once, 1.6 MiB; when they are used up, the one
/// that was not used for longest gives way. [`PARKED`] come on top.
pub const AFFINITY: u32 = 1 << 14;

/// Default entries of CLIENTS: clients outside, with each Service with session affinity that they use.
pub const CLIENTS: u32 = 1 << 16;
/// Default flows in TRACK, which has two entries for each (one that is translated twice counts as two): what
/// kube-proxy makes the kernel track on a node with four cores. About 38 MiB, taken at once.
pub const TRACKED_FLOWS: u32 = 1 << 17;
/// Default entries of TRACK.
pub const TRACK: u32 = 2 * TRACKED_FLOWS;
/// Default entries of OPENING. [`PARKED`] come on top.
pub const OPENING: u32 = 1 << 16;
/// Default entries of FRAGMENTS: datagrams in fragments that are on their way at the same time.
pub const FRAGMENTS: u32 = 1 << 12;

/// How many free entries of an LRU map a CPU may keep for itself (`LOCAL_FREE_TARGET` of the
/// kernel's `bpf_lru_list.c`): one CPU evicts what is in use while others hold as many that are
/// free. So a map has that many more for each CPU that there can be, or it would not hold what it
/// is said to. Since Linux 6.16 small maps have smaller lists.
pub const PARKED: u32 = 128;

/// Default entries of REASONS: devices, and one for all that have no entry.
pub const REASONS: u32 = 1 << 8;

/// Entries of SOURCES: some addresses of each device.
pub const SOURCES: u32 = 1 << 12;
/// Entries of OWN_ADDRS. Where there are more addresses, some cannot be seen in the place of clients.
pub const OWN_ADDRS: u32 = 1 << 12;
/// Entries of PORTS: a bit for each port.
pub const RESERVED_WORDS: u32 = 1 << 11;

/// Every map of the socket programs, in the order they are documented.
pub const MAPS: [MapShape; 12] = [
    hash::<ServiceKey, ServiceValue>(
        "SERVICES",
        SERVICES,
        "Service port number -> protocol, family, namespace, name, port name",
    ),
    hash::<FrontendKey, FrontendValue>(
        "FRONTENDS",
        FRONTENDS,
        "address, port, protocol that clients dial -> Service port, sets, flags, affinity",
    ),
    hash::<NodeAddressKey, NodeAddressValue>(
        "NODE_ADDRS",
        NODE_ADDRS,
        "addresses of this node on which NodePorts answer",
    ),
    hash::<SetKey, SetValue>("SETS", SETS, "set -> count of endpoints"),
    hash::<SlotKey, SlotValue>(
        "SLOTS",
        SLOTS,
        "set, index -> endpoint, address, port, whether it is on this node",
    ),
    hash::<MemberKey, MemberValue>("MEMBERS", MEMBERS, "set, endpoint -> index of its slot"),
    MapShape {
        name: "RANGES",
        kind: LPM_TRIE,
        key_size: size_of::<RangeKey>() as u32,
        value_size: size_of::<RangeValue>() as u32,
        entries: RANGES,
        flags: NO_PREALLOC,
        group: MapGroup::Services,
        sizable: true,
        about: "Service port, source range -> its clients may dial the load-balancer IPs",
    },
    MapShape {
        name: "AFFINITY",
        kind: LRU_HASH,
        key_size: size_of::<AffinityKey>() as u32,
        value_size: size_of::<AffinityValue>() as u32,
        entries: AFFINITY,
        flags: 0,
        // Its numbers are those of these Service maps.
        group: MapGroup::Services,
        sizable: true,
        about: "client, Service port -> endpoint it used last, and when",
    },
    MapShape {
        name: "COUNTERS",
        kind: PERCPU_ARRAY,
        key_size: 4,
        value_size: size_of::<Counters>() as u32,
        entries: 1,
        flags: 0,
        group: MapGroup::Services,
        sizable: false,
        about: "per CPU: refusals and rare events",
    },
    MapShape {
        name: "NUMBERS",
        kind: ARRAY,
        key_size: 4,
        value_size: 4,
        entries: 1,
        flags: 0,
        // Sockets remember endpoints by number: what may be reused is known as long as they are.
        group: MapGroup::Flows,
        sizable: false,
        about: "first number that no Service port, set or endpoint was ever given",
    },
    MapShape {
        name: "PEERS",
        kind: ARRAY,
        key_size: 4,
        value_size: size_of::<Peer>() as u32,
        entries: PEERS,
        flags: 0,
        group: MapGroup::Flows,
        sizable: true,
        about: "by socket cookie: the frontend a socket dialled and the endpoint behind it",
    },
    MapShape {
        name: "FLOWS",
        kind: SK_STORAGE,
        key_size: 4,
        value_size: size_of::<Flows>() as u32,
        entries: 0,
        flags: NO_PREALLOC,
        group: MapGroup::Flows,
        sizable: false,
        about: "with the socket: what does not fit its place in PEERS",
    },
];

const fn hash<K, V>(name: &'static str, entries: u32, about: &'static str) -> MapShape {
    MapShape {
        name,
        kind: HASH,
        key_size: size_of::<K>() as u32,
        value_size: size_of::<V>() as u32,
        entries,
        flags: NO_PREALLOC,
        group: MapGroup::Services,
        sizable: true,
        about,
    }
}

/// Of these, the ones that programs on devices read too.
pub const SHARED_MAPS: [&str; 6] = [
    "FRONTENDS",
    "NODE_ADDRS",
    "SETS",
    "SLOTS",
    "MEMBERS",
    "RANGES",
];

/// The maps that the programs on devices alone use, in the order they are documented.
pub const EDGE_MAPS: [MapShape; 11] = [
    of_connections::<ConnectionKey, ConnectionValue>(
        TRACKED_MAP,
        (HASH, 0),
        TRACKED_FLOWS,
        "packet of an answered flow -> what is put in it, and how the flow stands",
    ),
    of_connections::<ConnectionKey, ConnectionValue>(
        "OPENING",
        (LRU_HASH, 0),
        OPENING,
        "the same, of flows that are not answered, or were left to the layer beneath",
    ),
    of_connections::<ClientKey, AffinityValue>(
        "CLIENTS",
        (LRU_HASH, 0),
        CLIENTS,
        "address of a client, Service port -> endpoint it used last, and when",
    ),
    of_connections::<FragmentKey, FragmentValue>(
        "FRAGMENTS",
        (LRU_HASH, 0),
        FRAGMENTS,
        "fragments of a datagram -> where the first one went, or that a later one came before it",
    ),
    of_connections::<u32, Counted>(
        "REASONS",
        (PERCPU_HASH, NO_PREALLOC),
        REASONS,
        "device -> packets that were passed on or dropped, by reason; 0 for other devices",
    ),
    MapShape {
        sizable: false,
        ..of_connections::<SourceKey, SourceValue>(
            "SOURCES",
            (HASH, NO_PREALLOC),
            SOURCES,
            "device -> addresses that endpoints see in the place of clients",
        )
    },
    MapShape {
        sizable: false,
        ..of_connections::<NodeAddressKey, NodeAddressValue>(
            "OWN_ADDRS",
            (HASH, NO_PREALLOC),
            OWN_ADDRS,
            "addresses that this host has, or had a moment ago",
        )
    },
    only::<u32>(
        "PORTS",
        ARRAY,
        RESERVED_WORDS,
        "a bit for each port that they must not see in the place of a client's",
    ),
    only::<Settings>("SETTINGS", ARRAY, 1, "timeouts, and what the agent wants"),
    only::<u64>("TRACKED", ARRAY, 1, "flows in TRACK, about"),
    only::<u64>(
        "CLOCK",
        ARRAY,
        1,
        "seconds since boot, and the tick that they were read at",
    ),
];

/// The map whose size is given in flows: each takes two entries; one that is translated twice counts as two.
pub const TRACKED_MAP: &str = "TRACK";

const fn of_connections<K, V>(
    name: &'static str,
    (kind, flags): (u32, u32),
    entries: u32,
    about: &'static str,
) -> MapShape {
    MapShape {
        name,
        kind,
        key_size: size_of::<K>() as u32,
        value_size: size_of::<V>() as u32,
        entries,
        flags,
        group: MapGroup::Connections,
        sizable: true,
        about,
    }
}

const fn only<V>(name: &'static str, kind: u32, entries: u32, about: &'static str) -> MapShape {
    MapShape {
        name,
        kind,
        key_size: 4,
        value_size: size_of::<V>() as u32,
        entries,
        flags: 0,
        group: MapGroup::Connections,
        sizable: false,
        about,
    }
}

/// The programs on devices, by what packets begin with there: those with an Ethernet header, and those
/// with the IP header; and those on devices of pods. Replies come first, so that no request is translated whose
/// reply is not.
pub const EDGE_PROGRAMS: [&str; 6] = [
    "culvert_eth_out",
    "culvert_ip_out",
    "culvert_eth_in",
    "culvert_ip_in",
    "culvert_pod_out",
    "culvert_pod_in",
];

/// The program that removes flows; attached nowhere.
pub const SWEEP_PROGRAM: &str = "culvert_sweep";

/// The socket programs in the order they are attached: what frees and translates back comes
/// before what sends requests away. Detached in the opposite order.
pub const SOCKET_PROGRAMS: [&str; 9] = [
    "culvert_close",
    "culvert_recv4",
    "culvert_recv6",
    "culvert_peer4",
    "culvert_peer6",
    "culvert_send4",
    "culvert_send6",
    "culvert_conn4",
    "culvert_conn6",
];

/// Those of them that send requests away. Without them, what open sockets remember is translated back
/// as before, and nothing new is led anywhere.
pub const LEADING_PROGRAMS: [&str; 4] = [
    "culvert_send4",
    "culvert_send6",
    "culvert_conn4",
    "culvert_conn6",
];

/// Global that the loader sets to the cookie of the node's network namespace; 0 for the initial
/// one.
pub const HOST_NETNS: &str = "HOST_NETNS";

/// Global that the loader sets to the entries of PEERS, a power of two, less one.
pub const PEERS_MASK: &str = "PEERS_MASK";

/// Global that the loader sets to 1 where the kernel has `bpf_set_retval` in these programs
/// (6.1), so that a refusal names its reason instead of EPERM.
pub const HAS_SET_RETVAL: &str = "HAS_SET_RETVAL";

/// Global of the programs (u32): where the flags are in the kernel's `task_struct`, in bytes, or one
/// of the words of [`crate::caller`]. Matters only without [`HAS_SET_RETVAL`].
pub const TASK_FLAGS: &str = "TASK_FLAGS";
