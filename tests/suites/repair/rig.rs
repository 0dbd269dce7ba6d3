//! A backend in this process, on a throw-away node, with what is needed to damage what it made.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use proxy_agent::cluster::manifests::load_once;
use proxy_backend::Timeouts;
use proxy_backend_ebpf::{EbpfBackend, EbpfOptions, Tc};
use proxy_common::names::{MAPS, MapGroup, MapShape};
use proxy_model::{Backend as _, Difference, DifferenceKind, NodeState, RepairReport};
use proxy_tests::{
    Prober, Shop,
    bpf::Pinned,
    bpffs::PinDir,
    pod::Transport,
    shop::{frontend, http},
};

/// A backend on a shop's cgroup. Fields are dropped in this order.
pub struct Rig {
    pub backend: EbpfBackend,
    pub prober: Prober,
    pub state: NodeState,
    pub pins: PinDir,
    pub shop: Shop,
}

impl Rig {
    /// Serves `manifest`.
    pub fn new(manifest: &str) -> Self {
        let shop = Shop::new().unwrap();
        let pins = PinDir::new().unwrap();
        let mut backend = EbpfBackend::open(&options(&pins, shop.world.cgroup().path())).unwrap();
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

    pub fn differences(&mut self) -> Vec<Difference> {
        self.backend.differences(&self.state).unwrap()
    }

    pub fn repair(&mut self) -> RepairReport {
        self.backend.repair(&self.state).unwrap()
    }

    /// Repairs damage of which exactly `expected` must be told: object and kind.
    pub fn mend(&mut self, expected: &[(&str, DifferenceKind)]) {
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
    pub fn assert_whole(&mut self) {
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

    pub fn directory(&self, group: MapGroup) -> PathBuf {
        self.pins.path().join(match group {
            MapGroup::Services => "services-v1",
            MapGroup::Flows => "flows-v1",
            MapGroup::Connections => "connections-v1",
        })
    }

    pub fn pin_of(&self, shape: &MapShape) -> PathBuf {
        self.directory(shape.group).join(shape.name)
    }

    pub fn map(&self, shape: &MapShape) -> Pinned {
        Pinned::open(&self.pin_of(shape)).unwrap()
    }

    pub fn link_pin(&self, name: &str) -> PathBuf {
        self.pins.path().join("links").join(name)
    }

    pub fn link(&self, name: &str) -> Pinned {
        Pinned::open(&self.link_pin(name)).unwrap()
    }
}

/// Options for pins and a cgroup of a test.
pub fn options(pins: &PinDir, cgroup: &Path) -> EbpfOptions {
    EbpfOptions {
        pin_dir: pins.path().to_owned(),
        cgroup_path: Some(cgroup.to_owned()),
        map_sizes: BTreeMap::new(),
        kernel_log: false,
        tc: Tc::Off,
        devices: Vec::new(),
        keep_client_address: false,
        source_ports: 32768..=65535,
        timeouts: Timeouts::default(),
    }
}

/// The map of that name.
pub fn shape(map: &str) -> &'static MapShape {
    MAPS.iter().find(|shape| shape.name == map).unwrap()
}

/// The state that a manifest leads to.
pub fn state(manifest: &str) -> NodeState {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cluster.yaml");
    fs::write(&path, manifest).unwrap();
    proxy_model::compute("node-a", load_once(vec![path]).unwrap())
}

/// The maps that the agent fills.
pub fn service_maps() -> impl Iterator<Item = &'static MapShape> {
    MAPS.iter().filter(|shape| shape.is_programmed())
}
