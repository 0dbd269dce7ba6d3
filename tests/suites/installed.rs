//! The agent as it is installed: an image, the specification of its pod, and what kubelet makes of the
//! two, on a node with an API server. Needs root, BPF and `nf_tables`.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "installed/chart.rs"]
mod chart;
#[path = "installed/documents.rs"]
mod documents;
#[path = "installed/iptables.rs"]
mod iptables;
#[path = "installed/kubeadm.rs"]
mod kubeadm;

use std::{path::PathBuf, sync::Arc};

use proxy_tests::{
    Prober, Shop, Traffic,
    api_server::{ApiServer, Authority, Options},
    kubelet::Surroundings,
    pod::Transport,
    requires::{self, NFTABLES, PRIVILEGED},
    shop::{LoadKind, loads, service},
    world::NODE_ADDRESSES,
};
use serde::de::DeserializeOwned;

use crate::image::unpacked::Image;

const SUITE: &str = "installed";
const NODE: &str = "node-a";
const TOKEN: &str = "of-the-service-account";
const CONNECTIONS: &[LoadKind] = &[
    ("connections", Transport::Http, false, false),
    ("connections over IPv6", Transport::Http, false, true),
];

/// Whether this machine can run what is installed.
fn possible() -> bool {
    requires::met(SUITE, PRIVILEGED) && requires::met(SUITE, NFTABLES)
}

/// A node with an API server that asks who is there, as every cluster's does.
struct Cluster {
    shop: Shop,
    server: ApiServer,
    image: Image,
}

impl Cluster {
    /// One with the Service 1 and its first endpoint.
    fn new() -> Self {
        let shop = Shop::routed().unwrap();
        let server = ApiServer::start(Options {
            netns: Some(shop.world.node().netns()),
            authority: Some(Arc::new(Authority::new().unwrap())),
            ..Options::default()
        })
        .unwrap();
        server.set_tokens(Some(&[TOKEN]));
        server.apply_yaml(&node(false)).unwrap();
        server.apply_yaml(&service(1, &[1])).unwrap();
        Self {
            shop,
            server,
            image: Image::unpack(""),
        }
    }

    /// Where the image was unpacked.
    fn image(&self) -> PathBuf {
        self.image.root()
    }

    /// What pods in this namespace are given.
    fn around(&self, namespace: &str) -> Surroundings {
        let authority = self.server.authority().unwrap().pem().to_owned();
        Surroundings {
            node_name: NODE.to_owned(),
            namespace: namespace.to_owned(),
            service_account: Some((TOKEN.to_owned(), authority)),
            ..Surroundings::default()
        }
    }

    /// Clients of a pod that never stop.
    fn traffic(&self) -> Traffic {
        self.traffic_of(&[CONNECTIONS, &[("datagrams", Transport::Udp, true, false)]].concat())
    }

    /// The same without datagrams: the answer of an endpoint that has just gone finds no flow any more, and shows whose
    /// it is.
    fn connections(&self) -> Traffic {
        self.traffic_of(CONNECTIONS)
    }

    fn traffic_of(&self, kinds: &[LoadKind]) -> Traffic {
        let prober = Prober::start(&self.shop.client).unwrap();
        Traffic::of("a pod", prober, loads(1, kinds)).unwrap()
    }
}

/// The Node object, cordoned or not.
fn node(cordoned: bool) -> String {
    let [v4, v6] = NODE_ADDRESSES;
    format!(
        "apiVersion: v1\nkind: Node\nmetadata: {{name: {NODE}}}\n\
         spec: {{unschedulable: {cordoned}}}\n\
         status:\n  addresses:\n  - {{type: InternalIP, address: {v4}}}\n  \
         - {{type: InternalIP, address: \"{v6}\"}}\n"
    )
}

/// An object as a manifest has it.
fn object<T: DeserializeOwned>(yaml: &str) -> T {
    serde_saphyr::from_str(yaml).unwrap()
}
