//! The reference page of maps and programs, made from the names that both sides use.

use std::fmt::Write as _;

use proxy_common::{
    CONNECTIONS_ABI, FLOWS_ABI, SERVICES_ABI,
    names::{EDGE_MAPS, EDGE_PROGRAMS, MAPS, MapGroup, MapShape, PARKED, SOCKET_PROGRAMS},
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
             take two entries each, and one in eight comes on top",
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
    page
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
