//! What is told of fields.

use super::*;
use crate::config::cli;

fn explain(path: &str) -> Result<String, String> {
    let all = cli::flags_of_fields().chain(cli::FLAGS_BEFORE_FIELDS);
    let flags: Vec<_> = all.collect();
    super::super::explained::explain(path, &flags)
}

#[test]
fn every_field_and_section_of_every_version_is_known() {
    for version in Version::ALL {
        for spelling in version.spellings() {
            let told = explain(spelling.path).unwrap();
            let head = format!("{}, a field of {version}\n", spelling.path);
            assert!(told.contains(&head), "{told}");
            if let Some((section, _)) = spelling.path.rsplit_once('.') {
                let told = explain(section).unwrap();
                assert!(told.contains(spelling.path), "{told}");
            }
        }
    }
}

#[test]
fn a_field_is_told_with_its_flags_and_how_the_other_version_spells_it() {
    assert_eq!(
        explain("syncPeriod").unwrap(),
        "syncPeriod, a field of v1alpha2\n  holds     duration, longer than 0s\n  default   `30s`\n  flags     \
         --sync-period\n  elsewhere v1alpha1: iptables.syncPeriod, ipvs.syncPeriod, nftables.syncPeriod\n  honoured  \
         yes: how often the kernel is compared with the desired state\n"
    );
    let told = explain("oomScoreAdj").unwrap();
    assert!(
        told.contains("elsewhere v1alpha2: linux.oomScoreAdj\n"),
        "{told}"
    );
    assert!(told.contains("default   `-999` (`null`)\n"), "{told}");
    let told = explain("portRange").unwrap();
    assert!(told.contains("elsewhere not in v1alpha2\n"), "{told}");
    assert_eq!(
        explain("iptables.syncperiod").unwrap_err(),
        "no version has such a field; is iptables.syncPeriod meant?"
    );
}

#[test]
fn what_kube_proxy_would_refuse_is_told_with_what_to_do() {
    let told = |text: &str| texts(&refused_by_kube_proxy(text));
    assert_eq!(
        told(&format!("{HEAD}mode: iptables\nculvert: {{mode: ebpf}}\n")),
        [] as [String; 0]
    );
    for mode in ["auto", "ebpf"] {
        let refused = told(&format!("{HEAD}mode: {mode}\n"));
        assert_eq!(refused.len(), 1, "{refused:?}");
        assert!(refused[0].contains("culvert.mode"), "{refused:?}");
    }
    let refused = told(&format!("{HEAD}clusterCIDR: 10.0.0.0/8, fd00::/8\n"));
    assert_eq!(
        refused,
        ["clusterCIDR: kube-proxy takes no blanks around CIDRs: write \"10.0.0.0/8,fd00::/8\""]
    );
    let refused = told(&defaults(Version::V1Alpha2));
    assert!(
        refused[0].starts_with("apiVersion: kube-proxy reads no other"),
        "{refused:?}"
    );
}

#[test]
fn a_field_that_is_about_one_node_is_told_so_in_every_version() {
    let local = |path: &str| explain(path).unwrap().contains("Instance-local");
    for path in ["hostnameOverride", "bindAddress", "nodeIPOverride"] {
        assert!(local(path), "{path}");
    }
    let told = explain("hostnameOverride").unwrap();
    assert!(told.contains("flags     --hostname-override\n"), "{told}");
    assert!(!local("mode") && !local("nodePortAddresses"));
}
