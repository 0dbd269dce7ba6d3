//! The JSON Schemas take what is read, and refuse what they can tell.

use jsonschema::validator_for;

use super::{conversion::files, *};
use proptest::prelude::*;

fn validates(version: Version, file: &str) -> Result<(), String> {
    let schema = validator_for(&schema::schema(version)).unwrap();
    let value: Value = serde_saphyr::from_str(file).unwrap();
    schema.validate(&value).map_err(|error| error.to_string())
}

#[test]
fn the_file_of_kubeadm_is_right_in_both_versions() {
    let first = conversion::kubeadm();
    assert_eq!(validates(Version::V1Alpha1, &first), Ok(()));
    let second = convert(Some(&first), &[], Version::V1Alpha2, Extent::Said)
        .unwrap()
        .file;
    assert_eq!(validates(Version::V1Alpha2, &second), Ok(()));
    assert!(validates(Version::V1Alpha1, &second).is_err());
}

#[test]
fn all_defaults_are_right() {
    for version in Version::ALL {
        let file = defaults(version);
        assert_eq!(validates(version, &file), Ok(()), "{version}");
        let read = settle(Some(&file), &[]).unwrap();
        assert_eq!(read.version, version);
        // What a mode of detection needs no default can tell.
        let told = notices(&read);
        assert!(
            told.len() == 1 && told[0].starts_with("detectLocalMode: "),
            "{told:?}"
        );
    }
}

#[test]
fn what_is_wrong_by_itself_is_refused() {
    for wrong in [
        "mode: fast",
        "oomScoreAdj: 1001",
        "iptables: {masqueradeBit: 32}",
        "iptables: []",
        "iptables: {syncPeriod: -1s}",
        "iptables: {syncPeriod: 30}",
        "detectLocalMode: clustercidr",
        "nodePortAddresses: 10.0.0.0/8",
        "featureGates: {A: yes please}",
        "culvert: {tc: maybe}",
    ] {
        let file = format!("{HEAD}{wrong}\n");
        assert!(validates(Version::V1Alpha1, &file).is_err(), "{wrong}");
        assert!(settle(Some(&file), &[]).is_err(), "{wrong}");
    }
    let second = defaults(Version::V1Alpha2);
    let unknown = format!("{second}clusterCIDR: 10.0.0.0/8\n");
    assert!(validates(Version::V1Alpha2, &unknown).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn what_is_read_is_right(first in files(Version::V1Alpha1), second in files(Version::V1Alpha2)) {
        for (version, file) in [(Version::V1Alpha1, first), (Version::V1Alpha2, second)] {
            if settle(Some(&file), &[]).is_ok() {
                prop_assert_eq!(validates(version, &file), Ok(()), "{}", file);
            }
        }
    }
}
