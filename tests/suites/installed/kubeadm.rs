//! kubeadm's own DaemonSet for kube-proxy, in which only the image was exchanged.

use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{ConfigMap, PodSpec},
};
use proxy_tests::kubelet::{Bpffs, Kubelet, Surroundings};

use super::{Cluster, object, possible};

const DAEMON_SET: &str = include_str!("../../data/kubeadm/daemonset.yaml");
const CONFIG_MAP: &str = include_str!("../../data/kubeadm/configmap.yaml");

/// The pod, and what it is given.
fn kube_proxy(cluster: &Cluster) -> (PodSpec, Surroundings) {
    let daemon_set: DaemonSet = object(DAEMON_SET);
    let server = cluster.server.address().to_string();
    let map: ConfigMap = object(&CONFIG_MAP.replace("API-SERVER", &server));
    let mut around = cluster.around("kube-system");
    let maps = &mut around.config_maps;
    maps.insert(map.metadata.name.unwrap(), map.data.unwrap());
    (daemon_set.spec.template.spec.unwrap(), around)
}

#[test]
fn its_pod_serves_with_only_the_image_exchanged() {
    if !possible() {
        return;
    }
    let cluster = Cluster::new();
    let (pod, around) = kube_proxy(&cluster);
    let kubelet = Kubelet::new(&cluster.shop.world, Bpffs::Mounted).unwrap();
    let mut running = kubelet.start(&pod, &cluster.image(), &around).unwrap();
    // Its pod has neither of what eBPF needs of the host, which is told with what to do.
    let refused = running.wait_for("backend refused").unwrap();
    let reason = refused.text("reason").unwrap();
    for part in ["BPF file system: ", "cgroup v2: ", "mount the host's"] {
        assert!(reason.contains(part), "{part}: {reason}");
    }
    let chosen = running.wait_for("backend chosen").unwrap();
    assert_eq!(chosen.text("backend"), Some("nftables"), "{chosen:?}");
    running.wait_for("serving").unwrap();
    let mut traffic = cluster.traffic();
    traffic.goes_on("while it serves").unwrap();
    // A cluster as kubeadm makes it: who reads warnings has nothing to do.
    let log = running.terminate().unwrap();
    let warnings: Vec<_> = log
        .iter()
        .filter(|line| matches!(line.level(), Some("WARN" | "ERROR")))
        .map(|line| &line.raw)
        .collect();
    assert!(warnings.is_empty(), "{warnings:#?}");
    traffic.goes_on("after its end").unwrap();
    let mut again = kubelet.start(&pod, &cluster.image(), &around).unwrap();
    again.wait_for("serving").unwrap();
    traffic.goes_on("after a restart").unwrap();
    again.terminate().unwrap();
    traffic.stop().unwrap();
}
