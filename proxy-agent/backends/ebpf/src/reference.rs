//! The reference page of maps and programs, made from the names that both sides use.

use std::fmt::Write as _;

use proxy_common::{
    CONNECTIONS_ABI, FLOWS_ABI, SERVICES_ABI,
    names::{EDGE_MAPS, EDGE_PROGRAMS, MAPS, MapGroup, MapShape, PARKED, SOCKET_PROGRAMS},
    track::reason::Reason,
};

const GENERATED: &str = "<!-- Generated from the code by `cargo xtask docs`; do not edit. -->";

/// Every map and program of the eBPF backend.
pub fn maps() -> String {
    let mut page = format!(
        "# Maps and programs of the eBPF backend\n\n{GENERATED}\n\nPinned under `--pin-dir`: maps \
         of the first group in `services-v{SERVICES_ABI}/`, of the second in \
         `flows-v{FLOWS_ABI}/`, of the third in `connections-v{CONNECTIONS_ABI}/`, links in `links/` \
         and, by the numbers of devices, in `devices/`.\nPorts are in host byte order, addresses are 16 \
         bytes with IPv4 mapped into IPv6.\nThe layout of every key and value is in \
         `proxy-common`.\n`bpftool map dump pinned` names the fields; it shows addresses as bytes. \
         With readable addresses, `proxy-agent state` shows what the maps should hold, \
         `proxy-agent state --kernel` where they differ, and `proxy-agent render --backend ebpf` \
         every entry.\n"
    );
    let groups = [
        (
            "Service maps, rebuilt from the desired state at any time",
            MapGroup::Services,
        ),
        ("Flow maps, what sockets remember", MapGroup::Flows),
        (
            "Maps of connections, what programs on devices remember; TRACK is sized in flows, which \
             take two entries each (four, and so as two flows, where the endpoint is on another node and \
             sees this one), and one in eight comes on top",
            MapGroup::Connections,
        ),
    ];
    for (title, group) in groups {
        line(&mut page, &format!("\n## {title}\n"));
        line(
            &mut page,
            "| map | kind | key | value | entries | `--map-size` | holds |",
        );
        line(&mut page, "| --- | --- | --- | --- | --- | --- | --- |");
        let all = MAPS.iter().chain(&EDGE_MAPS);
        for shape in all.filter(|shape| shape.group == group) {
            line(&mut page, &map_row(shape));
        }
    }
    line(&mut page, "\n## Programs, in the order they are attached\n");
    for name in SOCKET_PROGRAMS {
        line(&mut page, &format!("- `{name}`"));
    }
    line(
        &mut page,
        "\nOn devices, egress first; `_eth_` where packets begin with an Ethernet header, `_ip_` where \
         they begin with the IP header:\n",
    );
    for name in EDGE_PROGRAMS {
        line(&mut page, &format!("- `{name}`"));
    }
    line(
        &mut page,
        "\n## Reasons, for which programs on devices do not translate a packet to a Service\n\nCounted in \
         REASONS by device, and so in `proxy-agent conntrack stats` and \
         `culvert_ebpf_edge_packets_total`; in the log at level debug (`packets not translated`).\n\n\
         | reason | the packet | why |\n| --- | --- | --- |",
    );
    for reason in Reason::ALL {
        let (becomes, why) = meaning(reason);
        line(
            &mut page,
            &format!("| `{}` | {becomes} | {why} |", reason.as_str()),
        );
    }
    page
}

/// What becomes of a packet for this reason, and why.
const fn meaning(reason: Reason) -> (&'static str, &'static str) {
    const PASSED: &str = "goes to the layer beneath";
    const DROPPED: &str = "is dropped";
    const EITHER: &str = "goes to the layer beneath, or is dropped if its connection had begun";
    match reason {
        Reason::Beneath => (PASSED, "it is of a connection that was left to that layer"),
        Reason::Options => (
            PASSED,
            "it is the first one, and has IP options or extension headers",
        ),
        Reason::FastOpen => (PASSED, "it opens a connection and has data (TCP Fast Open)"),
        Reason::NoEndpoint => (
            PASSED,
            "the Service has no endpoint; that layer rejects or drops it",
        ),
        Reason::Frontend => (
            PASSED,
            "the endpoint is a frontend itself, which is translated once",
        ),
        Reason::SourceRanges => (
            PASSED,
            "the client is in none of the source ranges of the Service; that layer drops it",
        ),
        Reason::LocalSource => (
            PASSED,
            "it comes from this node or its pods, or from the endpoint itself",
        ),
        Reason::Collision => (
            PASSED,
            "from this client and port, every endpoint that was tried is reached already, by another \
             address of the Service or directly",
        ),
        Reason::TableFull => (
            EITHER,
            "there is no room for another connection; see `--map-size`",
        ),
        Reason::Changed => (PASSED, "the Service changed again and again meanwhile"),
        Reason::Leaving => (
            PASSED,
            "no connection begins on devices for now, or any more",
        ),
        Reason::NotChanged => (DROPPED, "the kernel did not let it be changed"),
        Reason::Superseded => (DROPPED, "a later connection has the place of its own"),
        Reason::Redirect => (
            DROPPED,
            "an ICMP redirect would show the client what is behind the Service",
        ),
        Reason::Fragment => (
            EITHER,
            "a later fragment of its datagram came before this first one",
        ),
        Reason::Unsaid => (
            PASSED,
            "nothing says what becomes of clients outside, as in maps of an earlier version",
        ),
        Reason::NoRoute => (
            PASSED,
            "the endpoint must see this node as the client, and no route leads there from the device that \
             the packet came in by",
        ),
        Reason::NoSource => (
            PASSED,
            "the endpoint must see this node as the client, and is reached by a device that is not served, \
             or for which this node has no address",
        ),
        Reason::NoPort => (
            "goes to the layer beneath, or is dropped if it is not of a client outside",
            "the endpoint must see this node as the client, and every port that was tried is taken; or a \
             connection of this node has the port of such a client's, and none is free for it; see \
             `--source-ports`",
        ),
        Reason::Unanswered => (
            DROPPED,
            "its connection was not taken yet by the endpoint, which must see this node as the client",
        ),
        Reason::Direct => (
            PASSED,
            "client and endpoint talk to each other directly, from the same port",
        ),
    }
}

fn map_row(shape: &MapShape) -> String {
    // Numbers of `enum bpf_map_type`, linux/bpf.h.
    let kind = match shape.kind {
        1 => "hash",
        2 => "array",
        5 => "per-CPU hash",
        6 => "per-CPU array",
        9 => "LRU hash",
        11 => "longest-prefix trie",
        24 => "socket storage",
        _ => "other",
    };
    let entries = match shape.entries {
        0 => "one a socket".to_owned(),
        entries if shape.gives_way() => format!("{entries}, and {PARKED} a CPU"),
        entries => entries.to_string(),
    };
    format!(
        "| `{}` | {kind} | {} B | {} B | {entries} | {} | {} |",
        shape.name,
        shape.key_size,
        shape.value_size,
        if shape.sizable { "yes" } else { "no" },
        shape.about
    )
}

fn line(page: &mut String, text: &str) {
    writeln!(page, "{text}").expect("writing to a string cannot fail");
}
