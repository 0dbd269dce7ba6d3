//! What somebody else does to maps, pins and links while a backend runs: each kind of damage is
//! told and mended, with as many writes as there is damage. Needs root and BPF.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use proxy_agent::{
    backend::ebpf::{EbpfBackend, Options},
    once,
};
use proxy_common::names::{MAPS, MapGroup, MapShape, SOCKET_PROGRAMS};
use proxy_model::{Backend as _, Difference, DifferenceKind, NodeState, RepairReport};
use proxy_tests::{
    Prober, Shop,
    bpf::{self, Pinned},
    bpffs::PinDir,
    pod::{Load, Transport},
    requires::{self, PRIVILEGED},
    shop::{frontend, http, service, small_service},
};

/// A backend on a shop's cgroup. Fields are dropped in this order.
struct Rig {
    backend: EbpfBackend,
    prober: Prober,
    state: NodeState,
    pins: PinDir,
    shop: Shop,
}

impl Rig {
    /// Serves `manifest`.
    fn new(manifest: &str) -> Self {
        let shop = Shop::new().unwrap();
        let pins = PinDir::new().unwrap();
        let mut backend = EbpfBackend::open(&Options {
            pin_dir: pins.path().to_owned(),
            cgroup_path: Some(shop.world.cgroup().path().to_owned()),
            map_sizes: BTreeMap::new(),
            kernel_log: false,
        })
        .unwrap();
        let state = state(manifest);
        let report = backend.sync(&state, &state.as_change_set()).unwrap();
        assert!(report.failures.is_empty(), "{report:?}");
        let prober = Prober::start(&shop.client).unwrap();
        Self {
            backend,
            prober,
            state,
            pins,
            shop,
        }
    }

    fn differences(&mut self) -> Vec<Difference> {
        self.backend.differences(&self.state).unwrap()
    }

    fn repair(&mut self) -> RepairReport {
        self.backend.repair(&self.state).unwrap()
    }

    /// Repairs damage of which exactly `expected` must be told: object and kind.
    fn mend(&mut self, expected: &[(&str, DifferenceKind)]) {
        let expected: BTreeSet<_> = expected
            .iter()
            .map(|(object, kind)| ((*object).to_owned(), *kind))
            .collect();
        let told = |differences: &[Difference]| -> BTreeSet<_> {
            let told = differences.iter();
            told.map(|one| (one.object.clone(), one.kind)).collect()
        };
        let seen = self.differences();
        assert_eq!(told(&seen), expected, "{seen:#?}");
        let report = self.repair();
        assert_eq!(told(&report.repaired), expected, "{report:#?}");
        assert_eq!(report.writes, expected.len(), "{report:#?}");
        assert!(report.problems.is_empty(), "{report:#?}");
        assert!(report.failures.is_empty(), "{report:#?}");
        self.assert_whole();
    }

    /// Nothing differs, so nothing is written, and traffic is led to both endpoints.
    fn assert_whole(&mut self) {
        assert_eq!(self.differences(), []);
        assert_eq!(self.repair(), RepairReport::default());
        for to in [frontend(1, 80), frontend(1, 53)] {
            let transport = if to.port() == 53 {
                Transport::Udp
            } else {
                Transport::Tcp
            };
            let attempts = self.prober.send(transport, to, 40).unwrap();
            let answers: BTreeSet<_> = attempts
                .iter()
                .map(|attempt| attempt.answer_as(to).unwrap().ip())
                .collect();
            assert_eq!(answers, [http(1).ip(), http(2).ip()].into(), "{to}");
        }
    }

    fn directory(&self, group: MapGroup) -> PathBuf {
        self.pins.path().join(match group {
            MapGroup::Services => "services-v1",
            MapGroup::Flows => "flows-v1",
        })
    }

    fn pin_of(&self, shape: &MapShape) -> PathBuf {
        self.directory(shape.group).join(shape.name)
    }

    fn map(&self, shape: &MapShape) -> Pinned {
        Pinned::open(&self.pin_of(shape)).unwrap()
    }

    fn link_pin(&self, name: &str) -> PathBuf {
        self.pins.path().join("links").join(name)
    }

    fn link(&self, name: &str) -> Pinned {
        Pinned::open(&self.link_pin(name)).unwrap()
    }
}

/// The state that a manifest leads to.
fn state(manifest: &str) -> NodeState {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cluster.yaml");
    fs::write(&path, manifest).unwrap();
    once::state(vec![path], Arc::from("node-a")).unwrap()
}

fn service_maps() -> impl Iterator<Item = &'static MapShape> {
    MAPS.iter()
        .filter(|shape| shape.group == MapGroup::Services && shape.sizable)
}

#[test]
fn every_damaged_entry_is_told_and_mended_with_one_write() {
    if !requires::met("repair", PRIVILEGED) {
        return;
    }
    let mut rig = Rig::new(&service(1, &[1, 2]));
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
        map.write(&vec![0x3d; key_size], &vec![0x3d; value_size])
            .unwrap();
        note(DifferenceKind::Unexpected);

        let seen = rig.differences();
        let kinds: BTreeSet<_> = seen.iter().map(|one| one.kind).collect();
        assert_eq!(kinds, expected.iter().copied().collect(), "{seen:#?}");
        let named = |one: &Difference| one.object.starts_with(shape.name);
        assert!(seen.iter().all(named), "{seen:#?}");
        let belongs = |one: &&Difference| one.service.is_some();
        assert_eq!(seen.iter().filter(belongs).count(), 2, "{seen:#?}");
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
    let mut rig = Rig::new(&service(1, &[1, 2]));
    let mut entries = 0;
    for shape in service_maps() {
        let map = rig.map(shape);
        let keys = map.keys(shape.key_size as usize).unwrap();
        entries += keys.len();
        map.delete_some(shape.key_size as usize, keys.len())
            .unwrap();
    }
    // More of others than one batch holds.
    let slots = service_maps().find(|shape| shape.name == "SLOTS").unwrap();
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
    let numbers = MAPS.iter().find(|shape| shape.name == "NUMBERS").unwrap();
    let map = rig.map(numbers);
    map.write(&[0; 4], &3_u32.to_ne_bytes()).unwrap();
    rig.mend(&[("NUMBERS 0", DifferenceKind::Changed)]);
    assert_ne!(map.read(&[0; 4], 4).unwrap(), 3_u32.to_ne_bytes());
}

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
    for (name, transport, keep) in [
        ("http", Transport::Http, false),
        ("udp", Transport::Udp, false),
        ("udp-kept", Transport::Udp, true),
    ] {
        let port = if transport.is_udp() { 53 } else { 80 };
        rig.prober
            .load_start(Load {
                name: name.to_owned(),
                transport,
                to: frontend(1, port),
                threads: 1,
                pause: Duration::from_micros(500),
                keep,
            })
            .unwrap();
    }
    let go_on = |rig: &mut Rig, when: &str| {
        for name in ["http", "udp", "udp-kept"] {
            let report = rig.prober.load_wait(name, 25).unwrap();
            assert!(report.failures.is_empty(), "{when}, {name}: {report:?}");
        }
    };
    let before = rig.pins.entries();
    go_on(&mut rig, "before");
    fs::remove_dir_all(rig.pins.path()).unwrap();
    go_on(&mut rig, "without pins");
    let directory = format!("pin directory {}", rig.pins.path().display());
    let objects: Vec<String> = MAPS
        .iter()
        .map(|shape| format!("map {}", shape.name))
        .chain(SOCKET_PROGRAMS.map(|name| format!("link {name}")))
        .collect();
    let mut expected = vec![(&*directory, DifferenceKind::Missing)];
    expected.extend(objects.iter().map(|one| (&**one, DifferenceKind::Unpinned)));
    rig.mend(&expected);
    go_on(&mut rig, "with pins again");
    assert_eq!(rig.pins.entries(), before);

    // The directory is locked again: no second agent gets in.
    let second = EbpfBackend::open(&Options {
        pin_dir: rig.pins.path().to_owned(),
        cgroup_path: Some(rig.shop.world.cgroup().path().to_owned()),
        map_sizes: BTreeMap::new(),
        kernel_log: false,
    });
    assert!(second.is_err_and(|error| error.to_string().contains("another agent")));

    // Damage that hurts: what begins after the repair does not fail.
    let frontends = MAPS.iter().find(|shape| shape.name == "FRONTENDS").unwrap();
    let map = rig.map(frontends);
    map.delete_some(frontends.key_size as usize, 4).unwrap();
    rig.link("culvert_conn4").detach().unwrap();
    rig.repair();
    for name in ["http", "udp", "udp-kept"] {
        rig.prober.load_stop(name).unwrap();
    }
    rig.assert_whole();
}

#[test]
fn a_directory_that_another_agent_took_is_left_alone() {
    if !requires::met("repair", PRIVILEGED) {
        return;
    }
    let mut rig = Rig::new(&service(1, &[1, 2]));
    fs::remove_dir_all(rig.pins.path()).unwrap();
    let mut second = EbpfBackend::open(&Options {
        pin_dir: rig.pins.path().to_owned(),
        cgroup_path: Some(rig.shop.world.cgroup().path().to_owned()),
        map_sizes: BTreeMap::new(),
        kernel_log: false,
    })
    .unwrap();
    second.sync(&rig.state, &rig.state.as_change_set()).unwrap();
    let theirs = rig.link("culvert_conn4").program_id().unwrap();
    let report = rig.repair();
    assert!(report.repaired.is_empty(), "{report:#?}");
    assert_eq!(report.problems.len(), 1, "{report:#?}");
    assert!(report.problems[0].contains("another agent"), "{report:#?}");
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
    let mut backend = EbpfBackend::open(&Options {
        pin_dir: pins.path().to_owned(),
        cgroup_path: Some(cgroup.clone()),
        map_sizes: BTreeMap::new(),
        kernel_log: false,
    })
    .unwrap();
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

#[test]
fn a_service_that_did_not_fit_is_tried_again() {
    if !requires::met("repair", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let pins = PinDir::new().unwrap();
    let mut backend = EbpfBackend::open(&Options {
        pin_dir: pins.path().to_owned(),
        cgroup_path: Some(shop.world.cgroup().path().to_owned()),
        map_sizes: [("FRONTENDS".to_owned(), 2)].into(),
        kernel_log: false,
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
