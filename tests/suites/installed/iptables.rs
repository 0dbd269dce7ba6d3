//! `mode: iptables`: the chart's pod from the image that has the programs of iptables, on nodes whose kubelet uses
//! either flavour.

use std::collections::BTreeSet;

use proxy_tests::{kubelet::Bpffs, requires::Need};

use super::{
    Cluster, SUITE,
    chart::{Installed, assert_quiet},
    possible, requires,
};
use crate::image::unpacked::Image;

const NEEDS: &[Need] = &[
    Need::Tool("iptables-nft-restore"),
    Need::Tool("iptables-legacy-restore"),
];
const CHANGES: u8 = 20;

#[test]
fn its_pod_serves_by_the_programs_of_its_image_in_the_flavour_of_kubelet() {
    if !possible() || !requires::met(SUITE, NEEDS) {
        return;
    }
    let image = Image::unpack("-tools");
    for flavour in ["nft", "legacy"] {
        let cluster = Cluster::new();
        let node = Installed::new(&cluster, Bpffs::Absent);
        for family in ["iptables", "ip6tables"] {
            let program = format!("{family}-{flavour}-restore");
            let canary = "*mangle\n:KUBE-KUBELET-CANARY - [0:0]\nCOMMIT\n";
            let netns = cluster.shop.world.node().netns();
            netns.feed(&[&program, "--noflush"], canary).unwrap();
        }
        let chains = || -> BTreeSet<String> {
            let saved = node.on_node(&[&format!("iptables-{flavour}-save")]);
            let names = saved.lines().filter(|line| line.starts_with(":KUBE-"));
            names.map(ToOwned::to_owned).collect()
        };
        let before = chains();

        let pod = node.start(&["mode=iptables"], &image.root());
        let log = pod.log();
        let serving = log.iter().find(|line| line.message() == Some("serving"));
        let serving = serving.unwrap_or_else(|| panic!("{flavour}: {log:?}"));
        assert_eq!(serving.text("backend"), Some("iptables"), "{serving:?}");
        assert_eq!(serving.text("flavour"), Some(flavour), "{serving:?}");
        let mut traffic = cluster.connections();
        traffic.goes_on("installed").unwrap();
        for change in 0..CHANGES {
            node.lead_to(1 + change % 8);
        }
        node.until_led_to(1 + (CHANGES - 1) % 8);
        traffic.goes_on("after changes").unwrap();

        // Restarted: what the first one wrote serves meanwhile.
        assert_quiet(pod);
        traffic.goes_on("between two pods").unwrap();
        let again = node.start(&["mode=iptables"], &image.root());
        traffic.goes_on("after a restart").unwrap();
        assert_quiet(again);
        traffic.stop().unwrap();

        let mut cleans = node.start(&["mode=cleanup", "image.variant=tools"], &image.root());
        cleans.wait_for_words("clean;").unwrap();
        cleans.terminate().unwrap();
        assert_eq!(chains(), before, "{flavour}");
    }
}
