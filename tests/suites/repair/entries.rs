//! Entries of the maps.

use std::collections::BTreeSet;

use proxy_backend_ebpf::{EbpfBackend, EbpfOptions};
use proxy_model::{Backend as _, Difference, DifferenceKind};
use proxy_tests::{
    Prober, Shop,
    bpf::{Pinned, foreign_key},
    bpffs::PinDir,
    pod::Transport,
    requires::{self, PRIVILEGED},
    shop::{frontend, http, ranged_service, service, small_service},
};

use super::rig::{Rig, options, service_maps, shape, state};

/// Services that have entries in every map.
fn cluster() -> String {
    let ranges = "203.0.113.0/24, 198.51.100.0/25, \"2001:db8::/32\"";
    [service(1, &[1, 2]), ranged_service(2, &[3], ranges)].concat()
}

#[test]
fn every_damaged_entry_is_told_and_mended_with_one_write() {
    if !requires::met("repair", PRIVILEGED) {
        return;
    }
    let mut rig = Rig::new(&cluster());
    rig.assert_whole();
    for shape in service_maps() {
        let (key_size, value_size) = (shape.key_size as usize, shape.value_size as usize);
        let map = rig.map(shape);
        let keys = map.keys(key_size).unwrap();
        let mut expected = Vec::new();
        let mut note = |kind| expected.push(kind);
        // One entry is lost, one has a wrong byte (in its first field), one is nobody's.
        map.delete(&keys[0]).unwrap();
        note(DifferenceKind::Missing);
        let mut value = map.read(&keys[1], value_size).unwrap();
        value[0] ^= 0x40;
        map.write(&keys[1], &value).unwrap();
        note(DifferenceKind::Changed);
        let foreign = foreign_key(key_size, shape.is_trie());
        map.write(&foreign, &vec![0x3d; value_size]).unwrap();
        note(DifferenceKind::Unexpected);

        let seen = rig.differences();
        let kinds: BTreeSet<_> = seen.iter().map(|one| one.kind).collect();
        assert_eq!(kinds, expected.iter().copied().collect(), "{seen:#?}");
        let named = |one: &Difference| one.object.starts_with(shape.name);
        assert!(seen.iter().all(named), "{seen:#?}");
        let belongs = |one: &&Difference| one.service.is_some();
        let to_services = if shape.name == "NODE_ADDRS" { 0 } else { 2 };
        assert_eq!(
            seen.iter().filter(belongs).count(),
            to_services,
            "{seen:#?}"
        );
        let report = rig.repair();
        assert_eq!(report.writes, 3, "{}: {report:#?}", shape.name);
        assert_eq!(report.repaired.len(), 3, "{report:#?}");
        rig.assert_whole();
    }
}

#[test]
fn a_map_that_was_emptied_or_filled_with_others_is_mended() {
    if !requires::met("repair", PRIVILEGED) {
        return;
    }
    let mut rig = Rig::new(&cluster());
    let mut entries = 0;
    for shape in service_maps() {
        let map = rig.map(shape);
        let keys = map.keys(shape.key_size as usize).unwrap();
        entries += keys.len();
        map.delete_some(shape.key_size as usize, keys.len())
            .unwrap();
    }
    // More of others than one batch holds.
    let slots = shape("SLOTS");
    let map = rig.map(slots);
    let foreign: u32 = 9000;
    for index in 0..foreign {
        let key = [u32::MAX.to_ne_bytes(), index.to_ne_bytes()].concat();
        map.write(&key, &vec![0; slots.value_size as usize])
            .unwrap();
    }
    let report = rig.repair();
    assert_eq!(report.writes, entries + foreign as usize);
    assert_eq!(report.repaired.len(), report.writes);
    rig.assert_whole();
}

#[test]
fn the_number_that_outlives_restarts_is_mended() {
    if !requires::met("repair", PRIVILEGED) {
        return;
    }
    let mut rig = Rig::new(&service(1, &[1, 2]));
    let numbers = shape("NUMBERS");
    let map = rig.map(numbers);
    map.write(&[0; 4], &3_u32.to_ne_bytes()).unwrap();
    rig.mend(&[("NUMBERS 0", DifferenceKind::Changed)]);
    assert_ne!(map.read(&[0; 4], 4).unwrap(), 3_u32.to_ne_bytes());
}

#[test]
fn a_service_that_did_not_fit_is_tried_again() {
    if !requires::met("repair", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let pins = PinDir::new().unwrap();
    let mut backend = EbpfBackend::open(&EbpfOptions {
        map_sizes: [("FRONTENDS".to_owned(), 2)].into(),
        ..options(&pins, shop.world.cgroup().path())
    })
    .unwrap();
    // Foreign entries fill the map: the kernel refuses what the agent's own count allows.
    let two = state(&[small_service(1, &[1]), small_service(2, &[2])].concat());
    let one = state(&small_service(1, &[1]));
    backend.sync(&one, &one.as_change_set()).unwrap();
    let map = Pinned::open(&pins.path().join("services-v1/FRONTENDS")).unwrap();
    map.write(&[9; 20], &[9; 20]).unwrap();
    let mut prober = Prober::start(&shop.client).unwrap();
    let mut change = two.as_change_set();
    change.whole = false;
    let report = backend.sync(&two, &change).unwrap();
    assert_eq!(report.failures.len(), 1, "{report:?}");
    assert!(
        report.failures[0].reason.contains("FRONTENDS"),
        "{report:?}"
    );
    // The other one is as it was, and the foreign entry goes.
    let to = frontend(1, 80);
    let attempt = &prober.send(Transport::Tcp, to, 1).unwrap()[0];
    assert_eq!(attempt.answer_as(to), Ok(http(1)));
    let report = backend.repair(&two).unwrap();
    assert!(report.failures.is_empty(), "{report:#?}");
    let to = frontend(2, 80);
    let attempt = &prober.send(Transport::Tcp, to, 1).unwrap()[0];
    assert_eq!(attempt.answer_as(to), Ok(http(2)));
    assert_eq!(backend.differences(&two).unwrap(), []);
}

#[test]
fn others_that_fill_a_map_make_way() {
    if !requires::met("repair", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let pins = PinDir::new().unwrap();
    let mut backend = EbpfBackend::open(&EbpfOptions {
        map_sizes: [("FRONTENDS".to_owned(), 2)].into(),
        ..options(&pins, shop.world.cgroup().path())
    })
    .unwrap();
    let state = state(&small_service(1, &[1]));
    backend.sync(&state, &state.as_change_set()).unwrap();
    let map = Pinned::open(&pins.path().join("services-v1/FRONTENDS")).unwrap();
    let size = shape("FRONTENDS").key_size as usize;
    map.delete_some(size, 1).unwrap();
    for other in [8, 9] {
        map.write(&[other; 20], &[other; 20]).unwrap();
    }
    let report = backend.repair(&state).unwrap();
    assert_eq!(
        (report.repaired.len(), report.writes),
        (3, 3),
        "{report:#?}"
    );
    assert_eq!(map.keys(size).unwrap().len(), 1);
}
