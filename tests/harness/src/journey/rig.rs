//! A node between devices whose other ends the test holds, and what became of packets in it.
//!
//! That nothing became of a packet is known without waiting: the kernel takes the packets of one
//! CPU through the node one after the other, so once a *canary* that was sent behind them has come
//! out, so has everything else that ever will.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt::Write as _,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::fd::AsFd,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use proxy_model::Protocol;

use super::{
    cpu::Here,
    datagram::{self, Datagram, Meaning, TooBig},
    device::{Device, Kind},
    local::Local,
};
use crate::world::World;

/// By which everything leaves that the node sends on: its default route. What is behind the node answers
/// by it, too.
pub const UPLINK: &str = "uplink";

/// On which packets arrive whose interface is of no interest.
const ANYWHERE: &str = "wan0";

/// Where canaries fly: from and to nobody in no range that a cluster has (RFC 6598), and the
/// node's own.
const ABROAD: [Ipv4Addr; 2] = [Ipv4Addr::new(100, 64, 0, 1), Ipv4Addr::new(100, 64, 0, 2)];
const AT_HOME: [Ipv4Addr; 2] = [Ipv4Addr::LOCALHOST; 2];

/// "Discard": nobody's.
const CANARY_PORT: u16 = 9;

/// The first source port. Each is used once for each source and protocol, so that no packet belongs
/// to a connection that the kernel remembers.
const FIRST_PORT: u16 = 1024;

/// Packets in flight at once, far below the length of any queue.
const FLIGHT: usize = 64;

/// How long a canary may take, on a machine that does much else.
const LIMIT: Duration = Duration::from_mins(1);

const SETTINGS: &[(&str, &str)] = &[
    ("ipv4/ip_forward", "1"),
    ("ipv6/conf/all/forwarding", "1"),
    // Packets arrive where no route leads back.
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    ("ipv4/conf/all/send_redirects", "0"),
    ("ipv4/conf/default/send_redirects", "0"),
];

/// Where a packet enters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Entry {
    /// The node itself sends it.
    Node,
    /// It arrives on no interface in particular.
    Anywhere,
    /// It arrives on this one.
    Interface(Arc<str>),
}

/// A packet to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shot {
    /// Where it enters.
    pub entry: Entry,
    /// Who it says sends it.
    pub source: IpAddr,
    /// Whereto.
    pub destination: SocketAddr,
    /// What it speaks.
    pub protocol: Protocol,
}

/// What became of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sighting {
    /// It left the node as this.
    Left(Datagram),
    /// It was delivered to the node as this.
    Delivered(Datagram),
    /// The sender was told that nobody listens.
    Refused,
    /// An error about it left the node as this.
    TooBig(TooBig),
    /// Nothing.
    Nothing,
}

/// A packet on its way in, whatever it is.
#[derive(Debug)]
pub struct Parcel {
    /// Where it enters.
    pub entry: Entry,
    /// From its IP header on.
    pub packet: Vec<u8>,
    /// Where it is going, for what the node itself sends.
    pub destination: IpAddr,
    /// By which it is known again.
    pub token: u32,
}

/// The node, from outside.
#[derive(Debug)]
pub struct Rig {
    uplink: Device,
    entries: BTreeMap<Arc<str>, Device>,
    local: Local,
    next_token: u32,
    next_ports: HashMap<(IpAddr, Protocol), u16>,
}

impl Rig {
    /// Gives the node of `world`, which must be [bare](World::bare), devices of one kind: `interfaces`, on
    /// which packets can arrive, and one by which all leaves that it knows no better way for.
    pub fn new(world: &World, interfaces: &BTreeSet<Arc<str>>, kind: Kind) -> Result<Self> {
        let node = world.node();
        node.netns().sysctls(SETTINGS)?;
        let device = |name| Device::new(node.netns(), name, kind);
        let names = interfaces.iter().map(AsRef::as_ref).chain([ANYWHERE]);
        let rig = Self {
            uplink: device(UPLINK)?,
            entries: names
                .map(|name| Ok((name.into(), device(name)?)))
                .collect::<Result<_>>()?,
            local: node.netns().run(Local::open)??,
            next_token: 1,
            next_ports: HashMap::new(),
        };
        let mut script = String::new();
        let mut line = |text: std::fmt::Arguments<'_>| {
            writeln!(script, "{text}").expect("writing to a String cannot fail");
        };
        for address in node.addresses() {
            let (length, rest) = match address {
                IpAddr::V4(_) => (32, ""),
                IpAddr::V6(_) => (128, " nodad"),
            };
            line(format_args!(
                "addr add {address}/{length} dev {UPLINK}{rest}"
            ));
        }
        line(format_args!("route add 0.0.0.0/0 dev {UPLINK}"));
        line(format_args!("route add ::/0 dev {UPLINK}"));
        node.netns()
            .ip(&script)
            .context("cannot configure the node's devices")?;
        Ok(rig)
    }

    /// Sends `shots`, one after the other, and says what became of each: its number, and that.
    pub fn fire(&mut self, shots: &[Shot]) -> Result<Vec<(Datagram, Sighting)>> {
        let mut all = Vec::with_capacity(shots.len());
        for flight in shots.chunks(FLIGHT) {
            let sent: Vec<Datagram> = flight
                .iter()
                .map(|shot| self.datagram(shot))
                .collect::<Result<_>>()?;
            let entries = flight.iter().map(|shot| shot.entry.clone());
            let parcels: Vec<_> = entries.zip(&sent).map(Parcel::of).collect();
            all.extend(sent.into_iter().zip(self.deliver(&parcels)?));
        }
        Ok(all)
    }

    /// Sends `parcels`, few enough for one flight, and says what became of each.
    pub fn deliver(&mut self, parcels: &[Parcel]) -> Result<Vec<Sighting>> {
        let mut seen = self.fly(parcels)?;
        let fate = |parcel: &Parcel| {
            let sightings = seen.remove(&parcel.token).unwrap_or_default();
            one_of(&sightings).with_context(|| format!("{parcel:?} had several fates"))
        };
        parcels.iter().map(fate).collect()
    }

    /// A number that no other packet has.
    pub fn token(&mut self) -> u32 {
        self.next_token += 1;
        self.next_token - 1
    }

    /// Sends all of `sent` and gives what was seen, by number.
    fn fly(&mut self, sent: &[Parcel]) -> Result<HashMap<u32, Vec<Sighting>>> {
        let here = Here::pin()?;
        let mut entries = BTreeSet::new();
        for parcel in sent {
            self.send(parcel)?;
            entries.insert(parcel.entry.clone());
        }
        // One behind the packets of each device, and of the node: what leaves may stand in a queue that
        // another processor empties. And one behind what the node sends to itself.
        let mut canaries = BTreeSet::new();
        for (entry, [source, destination]) in entries
            .into_iter()
            .map(|entry| (entry, ABROAD))
            .chain([(Entry::Node, AT_HOME)])
        {
            let canary = self.datagram(&Shot {
                entry: entry.clone(),
                source: source.into(),
                destination: SocketAddr::new(destination.into(), CANARY_PORT),
                protocol: Protocol::Udp,
            })?;
            self.send(&Parcel::of((entry, &canary)))?;
            canaries.insert(canary.token);
        }
        let deadline = Instant::now() + LIMIT;
        let mut seen = HashMap::new();
        loop {
            self.look(&mut seen)?;
            canaries.retain(|token| !seen.contains_key(token));
            if canaries.is_empty() {
                break;
            }
            self.wait(deadline)
                .context("a packet that nothing should touch did not come out")?;
        }
        // What was behind a canary's back, in queues that were read before its own.
        self.look(&mut seen)?;
        drop(here);
        Ok(seen)
    }

    fn send(&self, parcel: &Parcel) -> Result<()> {
        let Parcel { packet, .. } = parcel;
        let name = match &parcel.entry {
            Entry::Node => return self.local.send(packet, parcel.destination),
            Entry::Anywhere => ANYWHERE,
            Entry::Interface(name) => name,
        };
        if name == UPLINK {
            return self.uplink.inject(packet);
        }
        let device = self.entries.get(name);
        let device = device.with_context(|| format!("the node has no device {name}"))?;
        device.inject(packet)
    }

    fn datagram(&mut self, shot: &Shot) -> Result<Datagram> {
        let port = self
            .next_ports
            .entry((shot.source, shot.protocol))
            .or_insert(FIRST_PORT);
        let source = SocketAddr::new(shot.source, *port);
        *port = port.checked_add(1).with_context(|| {
            format!("{} has no unused {} port left", shot.source, shot.protocol)
        })?;
        let token = self.token();
        Ok(Datagram::first(
            source,
            shot.destination,
            shot.protocol,
            token,
        ))
    }

    /// Notes all that can be seen now.
    fn look(&self, seen: &mut HashMap<u32, Vec<Sighting>>) -> Result<()> {
        let mut buffer = [0; 2048];
        let mut note = |token, sighting| seen.entry(token).or_default().push(sighting);
        for device in self.entries.values().chain([&self.uplink]) {
            while let Some(packet) = device.next(&mut buffer)? {
                let Some(meaning) = datagram::decode(packet) else {
                    continue;
                };
                match meaning {
                    Meaning::Refusal(token) => {
                        note(token, Sighting::Refused);
                        // The node made it: its sum may be left to the device.
                        continue;
                    }
                    Meaning::First(one) => note(one.token, Sighting::Left(one)),
                    Meaning::TooBig(one) => note(one.about.token, Sighting::TooBig(one)),
                }
                let is_sound = datagram::is_sound(packet);
                ensure!(is_sound, "a sum is wrong in {packet:?}, {meaning:?}");
            }
        }
        for ear in self.local.ears() {
            while let Some(meaning) = ear.next(&mut buffer)? {
                match meaning {
                    Meaning::First(one) => note(one.token, Sighting::Delivered(one)),
                    Meaning::Refusal(token) => note(token, Sighting::Refused),
                    Meaning::TooBig(one) => note(one.about.token, Sighting::TooBig(one)),
                }
            }
        }
        Ok(())
    }

    /// Waits until there is something to see.
    fn wait(&self, deadline: Instant) -> Result<()> {
        let devices = self.entries.values().chain([&self.uplink]);
        let devices = devices.map(Device::as_fd);
        let ears = self.local.ears().iter().map(AsFd::as_fd);
        let mut fds: Vec<_> = devices
            .chain(ears)
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
            .collect();
        let left = deadline.saturating_duration_since(Instant::now());
        ensure!(!left.is_zero(), "nothing came out in {LIMIT:?}");
        match poll(&mut fds, PollTimeout::try_from(left)?) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(error) => Err(error).context("cannot wait for packets"),
        }
    }
}

impl Parcel {
    fn of((entry, datagram): (Entry, &Datagram)) -> Self {
        Self {
            entry,
            packet: datagram.encode(),
            destination: datagram.destination.ip(),
            token: datagram.token,
        }
    }
}

/// What several sightings of one packet come to.
fn one_of(sightings: &[Sighting]) -> Result<Sighting> {
    let mut landed = sightings
        .iter()
        .copied()
        .filter(|one| !matches!(one, Sighting::Refused));
    let refused = sightings.contains(&Sighting::Refused);
    match (landed.next(), landed.next()) {
        (Some(_), Some(_)) => bail!("it was seen twice: {sightings:?}"),
        (Some(Sighting::Left(_)), None) if refused => {
            bail!("it left, and was refused: {sightings:?}")
        }
        // Where nobody listens, the node itself refuses what was delivered to it.
        (Some(one), None) => Ok(one),
        (None, _) if refused => Ok(Sighting::Refused),
        (None, _) => Ok(Sighting::Nothing),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_has_one_fate() {
        let [source, destination] =
            ["192.0.2.1:1024", "10.96.0.1:80"].map(|text| text.parse().unwrap());
        let datagram = Datagram::first(source, destination, Protocol::Tcp, 1);
        let left = Sighting::Left(datagram);
        let delivered = Sighting::Delivered(datagram);
        let fate = |sightings: &[Sighting]| one_of(sightings).ok();
        assert_eq!(fate(&[]), Some(Sighting::Nothing));
        assert_eq!(fate(&[left]), Some(left));
        let refused = Sighting::Refused;
        assert_eq!(fate(&[refused, refused]), Some(refused));
        assert_eq!(fate(&[delivered, refused]), Some(delivered));
        assert_eq!(fate(&[left, refused]), None);
        assert_eq!(fate(&[left, delivered]), None);
    }
}
