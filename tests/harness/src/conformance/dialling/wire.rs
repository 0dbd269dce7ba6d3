//! A node with pods that know no other way than through it, and probers wherever a probe may come
//! from. Knows what is sent from where, and nothing of what must come of it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    time::Duration,
};

use anyhow::{Result, bail};
use proxy_model::oracle::Packet;

use super::ruling::Dialler;
use crate::{
    cgroup::Cgroup,
    journey::Entry,
    pod::{Attempt, Listen, Prober, Server},
    scenario::{
        Probe,
        sources::{BRIDGE, CLIENT},
    },
    world::{Host, World},
};

/// Pods with servers, and who dials.
pub struct Wire<'w> {
    world: &'w World,
    client: Host,
    /// One for each endpoint address that is none of the node's.
    endpoints: BTreeMap<IpAddr, Host>,
    _servers: Vec<Server>,
    listen: BTreeSet<Listen>,
    probers: HashMap<(String, IpAddr, Dialler), Prober>,
    /// Where no hook of the node sees a process.
    unserved: Cgroup,
}

impl<'w> Wire<'w> {
    /// In `world`, which must be [routed](World::routed), with servers on all of `listen`.
    pub fn new(world: &'w World, listen: &BTreeSet<Listen>) -> Result<Self> {
        let client: Result<Vec<IpAddr>, _> = CLIENT.iter().map(|text| text.parse()).collect();
        let mut endpoints = BTreeMap::new();
        let mut servers = Vec::new();
        let addresses: BTreeSet<IpAddr> = listen.iter().map(|one| one.address.ip()).collect();
        for address in addresses {
            let own: Vec<_> = listen
                .iter()
                .filter(|one| one.address.ip() == address)
                .copied()
                .collect();
            // What runs in the node's network needs no other.
            if world.node().addresses().contains(&address) {
                servers.push(Server::start(world.node(), &own)?);
                continue;
            }
            let pod = world.pod(&format!("endpoint{}", endpoints.len()), &[address])?;
            servers.push(Server::start(&pod, &own)?);
            endpoints.insert(address, pod);
        }
        Ok(Self {
            world,
            client: world.pod("client", &client?)?,
            endpoints,
            _servers: servers,
            listen: listen.clone(),
            probers: HashMap::new(),
            unserved: world.cgroup().sibling()?,
        })
    }

    /// The node's addresses.
    pub fn own(&self) -> &[IpAddr] {
        self.world.node().addresses()
    }

    /// Has sockets that are opened from now on, in the `step`th step, use ports that those of the steps before
    /// did not: conntrack remembers for two minutes who dialled in vain, and does not decide such a connection
    /// anew.
    pub fn step(&self, step: usize) -> Result<()> {
        /// More than sockets of one step are open or were lately, and above NodePorts.
        const PORTS: u16 = 2_000;
        const FIRST: u16 = 40_000;
        let first = u16::try_from(step)
            .ok()
            .and_then(|step| FIRST.checked_add(PORTS.checked_mul(step)?));
        let last = first.and_then(|first| first.checked_add(PORTS - 1));
        let (Some(first), Some(last)) = (first, last) else {
            bail!("no ports are left for step {}", step + 1);
        };
        for host in self
            .endpoints
            .values()
            .chain([self.world.node(), &self.client])
        {
            host.netns().sends_from([first, last])?;
        }
        Ok(())
    }

    /// Whether somebody listens there.
    pub fn answers(&self, listener: &Listen) -> bool {
        self.listen.contains(listener)
    }

    /// How packets of `probe` reach the node.
    pub fn entry(probe: &Probe) -> Entry {
        match probe.source.as_str() {
            "node" => Entry::Node,
            _ => Entry::Interface(BRIDGE.into()),
        }
    }

    /// Sends `count` requests of `probe` by `dialler`, each given up after `timeout`. `packet` is what
    /// it sends.
    pub fn send(
        &mut self,
        probe: &Probe,
        packet: &Packet,
        dialler: Dialler,
        count: u32,
        timeout: Duration,
    ) -> Result<Vec<Attempt>> {
        let host = match probe.source.as_str() {
            "node" => self.world.node(),
            "pod" => &self.client,
            _ => &self.endpoints[&packet.source],
        };
        let key = (host.name().to_owned(), host.addresses()[0], dialler);
        if !self.probers.contains_key(&key) {
            let prober = match dialler {
                Dialler::Process => Prober::start(host)?,
                Dialler::Machine => {
                    Prober::start_with(|command| host.spawn_in(&self.unserved, command))?
                }
            };
            self.probers.insert(key.clone(), prober);
        }
        let prober = self
            .probers
            .get_mut(&key)
            .expect("it has just been inserted");
        match &probe.socket {
            Some(socket) => {
                prober.send_on_within(timeout, socket, probe.transport, probe.to, count)
            }
            None => prober.send_within(timeout, probe.transport, probe.to, count),
        }
    }
}
