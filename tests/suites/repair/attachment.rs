//! Links, and the pins of links and maps.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use proxy_backend_ebpf::EbpfBackend;
use proxy_common::names::{MAPS, SOCKET_PROGRAMS};
use proxy_model::{Backend as _, DifferenceKind, RepairReport};
use proxy_tests::{
    Shop, Traffic,
    bpf::{self, Pinned},
    bpffs::PinDir,
    pod::Transport,
    requires::{self, PRIVILEGED},
    shop::{loads, service},
};

use super::rig::{Rig, options, shape, state};

#[test]
fn detached_and_replaced_programs_are_put_back() {
    if !requires::met("repair", PRIVILEGED) {
        return;
    }
    let mut rig = Rig::new(&service(1, &[1, 2]));
    for name in SOCKET_PROGRAMS {
        let object = format!("link {name}");
        let link = rig.link(name);
        let before = link.program_id().unwrap();
        link.detach().unwrap();
        rig.mend(&[(&object, DifferenceKind::Detached)]);
        assert_eq!(rig.link(name).program_id().unwrap(), before);

        if name == "culvert_conn4" {
            let link = rig.link(name);
            link.replace_program(&bpf::pass_connect4().unwrap())
                .unwrap();
            assert_ne!(link.program_id().unwrap(), before);
            rig.mend(&[(&object, DifferenceKind::Replaced)]);
            // The same link, in place.
            assert_eq!(link.program_id().unwrap(), before);
        }
    }
}

#[test]
fn pins_that_were_removed_or_belong_to_others_are_put_back() {
    if !requires::met("repair", PRIVILEGED) {
        return;
    }
    let mut rig = Rig::new(&service(1, &[1, 2]));
    let pins: Vec<(PathBuf, String)> = MAPS
        .iter()
        .map(|shape| (rig.pin_of(shape), format!("map {}", shape.name)))
        .chain(SOCKET_PROGRAMS.map(|name| (rig.link_pin(name), format!("link {name}"))))
        .collect();
    let id = |path: &Path| Pinned::open(path).unwrap().map_id().unwrap();
    for (index, (path, object)) in pins.iter().enumerate() {
        let before = id(path);
        fs::remove_file(path).unwrap();
        rig.mend(&[(object, DifferenceKind::Unpinned)]);
        assert_eq!(id(path), before, "{object}");

        // What is pinned elsewhere now stands here: two pins of one object.
        let other = &pins[(index + 1) % pins.len()].0;
        fs::remove_file(path).unwrap();
        Pinned::open(other).unwrap().pin(path).unwrap();
        rig.mend(&[(object, DifferenceKind::Unpinned)]);
        assert_eq!(id(path), before, "{object}");
    }
}

#[test]
fn no_request_fails_while_the_pin_directory_is_lost_and_comes_back() {
    if !requires::met("repair", PRIVILEGED) {
        return;
    }
    let mut rig = Rig::new(&service(1, &[1, 2]));
    let kinds = [
        ("http", Transport::Http, false, false),
        ("udp", Transport::Udp, false, false),
        ("udp-kept", Transport::Udp, true, false),
    ];
    let mut traffic = Traffic::start("pod", &rig.shop.client, loads(1, &kinds)).unwrap();
    let before = rig.pins.entries();
    traffic.goes_on("before").unwrap();
    fs::remove_dir_all(rig.pins.path()).unwrap();
    traffic.goes_on("without pins").unwrap();
    let directory = format!("pin directory {}", rig.pins.path().display());
    let objects: Vec<String> = MAPS
        .iter()
        .map(|shape| format!("map {}", shape.name))
        .chain(SOCKET_PROGRAMS.map(|name| format!("link {name}")))
        .collect();
    let mut expected = vec![(&*directory, DifferenceKind::Missing)];
    expected.extend(objects.iter().map(|one| (&**one, DifferenceKind::Unpinned)));
    rig.mend(&expected);
    traffic.goes_on("with pins again").unwrap();
    assert_eq!(rig.pins.entries(), before);

    // The directory is locked again: no second agent gets in.
    let second = EbpfBackend::open(&options(&rig.pins, rig.shop.world.cgroup().path()));
    assert!(second.is_err_and(|error| error.to_string().contains("another agent")));

    // Damage that hurts: what begins after the repair does not fail.
    let frontends = shape("FRONTENDS");
    let map = rig.map(frontends);
    map.delete_some(frontends.key_size as usize, 4).unwrap();
    rig.link("culvert_conn4").detach().unwrap();
    rig.repair();
    // What it met meanwhile may have failed.
    drop(traffic);
    rig.assert_whole();
}

#[test]
fn a_directory_that_another_agent_took_is_left_alone() {
    if !requires::met("repair", PRIVILEGED) {
        return;
    }
    let mut rig = Rig::new(&service(1, &[1, 2]));
    fs::remove_dir_all(rig.pins.path()).unwrap();
    let mut second =
        EbpfBackend::open(&options(&rig.pins, rig.shop.world.cgroup().path())).unwrap();
    second.sync(&rig.state, &rig.state.as_change_set()).unwrap();
    let theirs = rig.link("culvert_conn4").program_id().unwrap();
    let report = rig.repair();
    assert!(report.repaired.is_empty(), "{report:#?}");
    assert_eq!(report.problems.len(), 1, "{report:#?}");
    assert!(
        report.problems[0].reason.contains("another agent"),
        "{report:#?}"
    );
    assert_eq!(rig.link("culvert_conn4").program_id().unwrap(), theirs);
    assert_eq!(second.repair(&rig.state).unwrap(), RepairReport::default());
}

#[test]
fn programs_follow_to_a_cgroup_that_was_made_anew() {
    if !requires::met("repair", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let pins = PinDir::new().unwrap();
    let cgroup = shop.world.cgroup().path().join("inner");
    fs::create_dir(&cgroup).unwrap();
    let mut backend = EbpfBackend::open(&options(&pins, &cgroup)).unwrap();
    let state = state(&service(1, &[1]));
    backend.sync(&state, &state.as_change_set()).unwrap();
    fs::remove_dir(&cgroup).unwrap();
    fs::create_dir(&cgroup).unwrap();
    let report = backend.repair(&state).unwrap();
    assert_eq!(report.repaired.len(), SOCKET_PROGRAMS.len(), "{report:#?}");
    assert!(report.problems.is_empty(), "{report:#?}");
    let id = fs::metadata(&cgroup).unwrap().ino();
    for name in SOCKET_PROGRAMS {
        let link = Pinned::open(&pins.path().join("links").join(name)).unwrap();
        assert_eq!(link.cgroup_id().unwrap(), id, "{name}");
    }
    assert_eq!(backend.repair(&state).unwrap(), RepairReport::default());
    drop(backend);
    drop(pins);
    fs::remove_dir(&cgroup).unwrap();
}
