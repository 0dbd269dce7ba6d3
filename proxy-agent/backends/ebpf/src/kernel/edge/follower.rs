//! The thread that keeps programs on the devices, and sweeps flows. A thread of its own, because it
//! waits for the kernel: a new device is served at once, whatever the owner of the state is at.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use aya::Ebpf;
use proxy_common::track::{Settings, reason::Counted};
use proxy_netlink::route::{Changes, Waker};

use super::{
    super::{EbpfOptions, OpenError, error::of_io, pins::Peek},
    Wanted,
    bypasses::Bypasses,
    counted,
    devices::{Chosen, Devices, Look, Seen},
    flows::{Flows, Swept},
    moved::Moved,
    room::{self, Room},
    settings,
    sourced::{self, Sourced},
    standing, told,
    written::Written,
};
use crate::{
    devices::{Choice, Device, Why},
    flags::Tc,
    sources,
};

/// How often it is looked whether everything is attached: the kernel does not tell of all that others
/// do.
const LOOK: Duration = Duration::from_secs(1);
/// Notifications that come within this time are one change.
const JOINED: Duration = Duration::from_millis(10);
/// How often flows that are over are looked for.
const SWEEP: Duration = Duration::from_secs(5);

/// The thread, and what is shared with it.
pub struct Follower {
    shared: Arc<Shared>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<Shown>,
    /// Locked for one system call, and before `state` where both are.
    written: Mutex<Written>,
}

/// What both sides write and read.
struct Shown {
    wanted: Wanted,
    /// Another directory, in the place of one that somebody removed.
    pins: Option<Peek>,
    stop: bool,
    devices: Arc<[Seen]>,
    swept: Swept,
    removed: u64,
    counted: counted::ByDevice,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Shown> {
        // Each change is one assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Follower {
    /// Attaches the programs once, with all connections that are `moved`, and follows from then on.
    pub fn start(
        pins: Peek,
        mut ebpf: Ebpf,
        options: &EbpfOptions,
        wanted: Wanted,
        moved: Option<Moved>,
    ) -> Result<Self, OpenError> {
        let subscribed = |error: io::Error| of_io(&error, "subscribing to changes of devices");
        // Older than the first look, which misses nothing then.
        let changes = Changes::subscribe().map_err(subscribed)?;
        let waker = changes.waker();
        let shared = Arc::new(Shared {
            state: Mutex::new(Shown {
                wanted,
                pins: None,
                stop: false,
                devices: Arc::default(),
                swept: Swept::default(),
                removed: 0,
                counted: None,
            }),
            written: Mutex::new(Written::of(&mut ebpf)?),
        });
        let flows = Flows::of(&ebpf)?;
        let sourced = Sourced::of(&mut ebpf)?;
        let mut work = Work {
            devices: Devices::new(options.devices.clone()),
            bypasses: (options.tc == Tc::Auto).then(Bypasses::default),
            flows,
            sourced,
            swept: None,
            room: Room::default(),
            failing: false,
            packets: told::Packets::default(),
            pins,
            shared: Arc::clone(&shared),
            ebpf,
        };
        work.settle(moved)?;
        let thread = thread::Builder::new()
            .name("devices".to_owned())
            .spawn(move || work.run(changes))
            .map_err(|error| of_io(&error, "starting the thread that follows devices"))?;
        Ok(Self {
            shared,
            waker,
            thread: Some(thread),
        })
    }

    /// What to go by from now on. The programs do at once; the devices follow.
    pub fn want(&self, wanted: Wanted) {
        // As long as it is held, the thread does not write what was wanted before.
        let mut written = self.shared.written();
        let mut shown = self.shared.lock();
        if shown.wanted != wanted {
            let settings = wanted.settings;
            shown.wanted = wanted;
            drop(shown);
            if let Err(error) = written.write(&settings) {
                tracing::warn!(%error, "programs on devices go by the node as it was; trying again");
            }
            self.waker.wake();
        }
    }

    /// Pins in this directory from now on.
    pub fn move_to(&self, pins: Peek) {
        self.shared.lock().pins = Some(pins);
        self.waker.wake();
    }

    /// What is on which device.
    pub fn devices(&self) -> Arc<[Seen]> {
        Arc::clone(&self.shared.lock().devices)
    }

    /// Flows in TRACK, and how many there may be.
    pub fn flows(&self) -> (u64, u64) {
        let shown = self.shared.lock();
        (shown.swept.flows, shown.wanted.settings.most_flows.into())
    }

    /// Flows that were removed because they were over.
    pub fn removed(&self) -> u64 {
        self.shared.lock().removed
    }

    /// Packets by device and reason.
    pub fn counted(&self) -> BTreeMap<String, Counted> {
        let shown = self.shared.lock();
        let mut by_name = BTreeMap::<String, Counted>::new();
        for (index, counted) in shown.counted.iter().flatten() {
            let name = told::name(&shown.devices, *index);
            by_name.entry(name.to_owned()).or_default().add(counted);
        }
        by_name
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            // It panicked: that was told.
            thread.join().ok();
        }
    }
}

/// Whether the programs are to leave a device. No connection begins then: it is one of several that a
/// packet may come in by, and the flag is one for all.
fn are_to_leave(chosen: &[Device]) -> bool {
    let leaves = |device: &Device| {
        let Choice::Served { why, .. } = &device.choice else {
            return false;
        };
        matches!(why, Why::Ending(_))
    };
    chosen.iter().any(leaves)
}

/// What the thread has.
struct Work {
    ebpf: Ebpf,
    devices: Devices,
    /// None if the operator wants the programs whatever they bypass.
    bypasses: Option<Bypasses>,
    flows: Flows,
    sourced: Sourced,
    pins: Peek,
    shared: Arc<Shared>,
    swept: Option<Instant>,
    room: Room,
    /// The last attempt failed, and that was told.
    failing: bool,
    packets: told::Packets,
}

impl Work {
    fn run(mut self, mut changes: Changes) {
        loop {
            match changes.wait(LOOK) {
                Ok(true) => thread::sleep(JOINED),
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(%error, "changes of devices are not told; looking each second");
                    thread::sleep(LOOK);
                }
            }
            if self.shared.lock().stop {
                return;
            }
            match self.settle(None) {
                Ok(()) => self.failing = false,
                Err(error) if self.failing => tracing::debug!(%error, "devices not known"),
                Err(error) => {
                    tracing::warn!(%error, "devices not known; trying again");
                    self.failing = true;
                }
            }
        }
    }

    /// Makes everything as it is wanted.
    fn settle(&mut self, moved: Option<Moved>) -> Result<(), OpenError> {
        let (wanted, pins) = {
            let mut shown = self.shared.lock();
            (shown.wanted.clone(), shown.pins.take())
        };
        if let Some(pins) = pins {
            self.pins = pins;
        }
        let bypasses = self.bypasses.as_mut().map(Bypasses::known);
        let flows = &mut self.flows;
        // In doubt they go on.
        let go_on = || flows.live(&wanted.settings).map_or(true, |live| live > 0);
        let bypasses = bypasses.as_deref().unwrap_or_default();
        let chosen = self.devices.choose(&wanted, &self.pins, bypasses, go_on)?;
        // Before the programs come to a device that they may only leave.
        let leaving = are_to_leave(&chosen.devices);
        self.shared.written().set_leaving(leaving);
        if moved.is_none() {
            self.write()?;
        }
        let are_new = self.devices.are_new(&chosen.devices);
        self.enter_standing(are_new);
        // Most get what they miss at once: the first look of an agent that starts, and one new port of a bridge,
        // must not make new connections wait that other pods can take.
        let pods_await = self.devices.unready(&chosen.ways);
        self.source(&wanted, &chosen, &pods_await);
        let look = self.devices.attach(&self.ebpf, &self.pins, &chosen.devices);
        if look.changed > 0 || !pods_await.is_empty() {
            // A pod that has no programs would be reached by packets whose answers nobody turns.
            self.source(&wanted, &chosen, &BTreeSet::new());
        }
        if let Some(moved) = moved {
            moved.finish()?;
            self.write()?;
        }
        // Those that began in between.
        self.enter_standing(are_new);
        self.show(look);
        self.count();
        self.sweep(&wanted.settings);
        Ok(())
    }

    /// Has flows that netfilter translates stay with it, where a device begins to be served.
    fn enter_standing(&mut self, is_needed: bool) {
        if is_needed && let Err(error) = standing::enter(&mut self.ebpf) {
            // They may change their endpoint, no worse.
            tracing::warn!(%error, "connections may change their endpoint");
        }
    }

    /// Tells the programs what stands for clients. Before they come to a device, so that they know it with
    /// the first packet; of one that they leave, no flow begins with it from now on. Devices that are `spared` keep
    /// what they have.
    fn source(&mut self, wanted: &Wanted, chosen: &Chosen, spared: &BTreeSet<u32>) {
        let facts = sources::Facts {
            links: &chosen.links,
            addresses: &chosen.addresses,
            node: &wanted.node,
            virtual_addresses: &wanted.virtual_addresses,
            bridges_call: sourced::bridges_call(),
        };
        let pods = self.devices.ready(&chosen.ways);
        let wanted = sources::choose(facts, chosen.served(), pods);
        self.sourced
            .settle(&wanted, &sources::own(&chosen.addresses), spared);
    }

    /// Writes what is wanted by now.
    fn write(&self) -> Result<(), OpenError> {
        let mut written = self.shared.written();
        let settings = self.shared.lock().wanted.settings;
        written.write(&settings)
    }

    /// Shows what is on which device, and tells what changed about that.
    fn show(&self, look: Look) {
        let seen: Arc<[Seen]> = look.seen.into();
        let before = std::mem::replace(&mut self.shared.lock().devices, Arc::clone(&seen));
        told::devices(&before, &seen);
    }

    /// Shows what the programs counted, and tells it.
    fn count(&mut self) {
        let devices = Arc::clone(&self.shared.lock().devices);
        let counted = counted::read(&mut self.ebpf, &devices);
        self.packets.tell(Instant::now(), &devices, &counted);
        self.shared.lock().counted = counted;
    }

    fn sweep(&mut self, settings: &Settings) {
        let is_crowded = self.shared.written().is_crowded();
        let pause = if is_crowded { LOOK } else { SWEEP };
        if self.swept.is_some_and(|at| at.elapsed() < pause) {
            return;
        }
        self.swept = Some(Instant::now());
        let settings = if is_crowded {
            settings::crowded(settings)
        } else {
            *settings
        };
        match self.flows.sweep(&mut self.ebpf, &settings) {
            Ok(swept) => {
                self.room.tell(swept.flows, settings.most_flows.into());
                let crowded = room::is_crowded(is_crowded, swept.flows, settings.most_flows.into());
                self.shared.written().set_crowded(crowded);
                let mut shown = self.shared.lock();
                shown.removed += swept.removed;
                shown.swept = swept;
            }
            Err(error) => {
                tracing::warn!(%error, "flows that are over were not removed; trying again");
            }
        }
    }
}
