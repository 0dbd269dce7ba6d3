//! What somebody else does to maps, pins and links while a backend runs: each kind of damage is
//! told and mended, with as many writes as there is damage. Needs root and BPF.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "repair/attachment.rs"]
mod attachment;
#[path = "repair/entries.rs"]
mod entries;
#[path = "repair/rig.rs"]
mod rig;

use std::fs;

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use proxy_tests::{
    Agent, AgentOptions, Prober, Shop,
    bpf::Pinned,
    pod::Transport,
    requires::{self, PRIVILEGED},
    shop::{answers, frontend, http, service},
};

/// The whole way, as an operator sees it.
#[test]
fn an_agent_that_is_sent_sighup_mends_and_tells_what_differs() {
    if !requires::met("repair", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let files = [("cluster.yaml", &*service(1, &[1, 2]))];
    let mut agent = Agent::start(&shop.world, AgentOptions::default(), &files).unwrap();
    let pins = agent.pins().path().to_owned();
    let before = agent.pins().entries();
    let link = pins.join("links/culvert_conn4");
    Pinned::open(&link).unwrap().detach().unwrap();
    fs::remove_file(pins.join("flows-v1/PEERS")).unwrap();
    let slots = Pinned::open(&pins.join("services-v1/SLOTS")).unwrap();
    slots
        .delete_some(rig::shape("SLOTS").key_size as usize, 2)
        .unwrap();

    kill(Pid::from_raw(agent.pid().unwrap()), Signal::SIGHUP).unwrap();
    let told = agent.wait_for("kernel state repaired").unwrap();
    assert_eq!(
        (told.number("differences"), told.number("writes")),
        (Some(4), Some(4))
    );
    assert_eq!(agent.pins().entries(), before);
    let mut prober = Prober::start(&shop.client).unwrap();
    let expected = [1, 2].map(http).into();
    let to = frontend(1, 80);
    assert_eq!(answers(&mut prober, Transport::Tcp, to).unwrap(), expected);
}
