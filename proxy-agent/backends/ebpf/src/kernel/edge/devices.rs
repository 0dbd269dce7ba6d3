//! One look at the devices: which are to be served, and the programs on each made so.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::IpAddr,
};

use aya::Ebpf;
use imbl::OrdSet;
use proxy_netlink::route::{Address, Direction, Link, Qdisc, RouteSocket};

use super::{
    super::{
        OpenError,
        links::program_fd,
        pins::Peek,
        tc::{self, Attached, Found, Hook, Program, State, sweep::sweep},
    },
    Wanted,
    role::{self, Role},
};
use crate::{
    NAME,
    bypass::Bypass,
    devices::{
        Choice, Device, Facts, Not, Why, choose,
        pods::{self, Ways},
        spare,
    },
    pattern::Pattern,
};

/// What is on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Whether it is served, and why.
    pub choice: Choice,
    /// What keeps programs from being attached, if they should be.
    pub problem: Option<String>,
}

impl Seen {
    /// Whether it is to be served.
    pub fn is_chosen(&self) -> bool {
        matches!(self.choice, Choice::Served { .. })
    }

    /// Whether it is served.
    pub fn is_served(&self) -> bool {
        self.is_chosen() && self.problem.is_none()
    }

    /// Whether clients outside may come in by it, and are not served there.
    pub fn is_missed(&self) -> bool {
        self.choice.is_missed() || (self.is_chosen() && self.problem.is_some())
    }

    /// As others see it. `keeps_clients`: see there.
    pub fn told(&self, keeps_clients: bool) -> proxy_model::Device {
        proxy_model::Device {
            name: self.name.clone(),
            is_served: self.is_served(),
            keeps_clients,
            reason: match &self.problem {
                Some(problem) => format!("not served: {problem}"),
                None => self.choice.to_string(),
            },
        }
    }
}

/// The devices, and what is attached to them.
pub struct Devices {
    route: RouteSocket,
    attached: BTreeMap<(u32, Direction), Attached>,
    /// What those are served for.
    roles: BTreeMap<u32, Role>,
    /// What an earlier agent left on devices of pods is known.
    adopted: bool,
    patterns: Vec<Pattern>,
    /// What an earlier agent left on devices that are not served is gone.
    swept: bool,
}

/// What is decided about devices, and what was known then.
pub struct Chosen {
    /// Each device.
    pub devices: Vec<Device>,
    /// The same as the kernel lists them.
    pub links: Vec<Link>,
    /// Their addresses.
    pub addresses: Vec<Address>,
    /// By which pods are reached.
    pub ways: Ways,
}

impl Chosen {
    /// The devices that are served for clients outside.
    pub fn served(&self) -> impl Iterator<Item = u32> {
        let served = self.devices.iter().filter(|one| one.served().is_some());
        served.map(|device| device.index)
    }
}

/// What a look came to.
#[derive(Debug, Default)]
pub struct Look {
    /// Every device.
    pub seen: Vec<Seen>,
    /// How many attachments were made, or put back.
    pub changed: usize,
}

impl Devices {
    /// Nothing is attached yet.
    pub fn new(patterns: Vec<Pattern>) -> Self {
        Self {
            route: RouteSocket::default(),
            attached: BTreeMap::new(),
            roles: BTreeMap::new(),
            adopted: false,
            patterns,
            swept: false,
        }
    }

    /// Decides about each device. `bypasses` would be bypassed; `connections_go_on` says whether any
    /// connection that programs translate may be open, and is asked only where that matters.
    pub fn choose(
        &mut self,
        wanted: &Wanted,
        pins: &Peek,
        bypasses: &[Bypass],
        connections_go_on: impl FnOnce() -> bool,
    ) -> Result<Chosen, OpenError> {
        let asked = |error: io::Error| {
            OpenError::Later(format!("asking the kernel for its devices: {error}"))
        };
        let mut chosen = choose_all(
            &mut self.route,
            &wanted.node,
            &self.patterns,
            &wanted.masqueraded,
            &self.roles,
        )
        .map_err(asked)?;
        if !std::mem::replace(&mut self.adopted, true) {
            self.roles
                .extend(role::of_earlier(&chosen.links, &pins.devices()));
        }
        let named = wanted.pods.as_ref();
        for device in &mut chosen.devices {
            self.keep_served(device);
            if device.served().is_some() && named.is_some_and(|pods| pods.include(&device.name)) {
                device.choice = Choice::Not(Not::Pods);
            }
        }
        // As long as the device is there: connections may be open whose endpoint is no more wanted.
        let on = chosen.ways.values().flatten().copied();
        let before = self.roles.iter().filter(|(_, role)| **role == Role::Pods);
        let on = on.chain(before.map(|(index, _)| *index)).collect();
        pods::add(&mut chosen.devices, &on);
        if !bypasses.is_empty() {
            spare(&mut chosen.devices, bypasses, connections_go_on());
        }
        Ok(chosen)
    }

    /// Whether any of them begins to be served.
    pub fn are_new(&self, chosen: &[Device]) -> bool {
        let mut served = chosen.iter().filter(|device| device.served().is_some());
        served.any(|device| Role::of(&device.choice) != self.roles.get(&device.index).copied())
    }

    /// Which of the `ways` to pods have their programs.
    pub fn ready<'a>(&self, ways: &'a Ways) -> impl Iterator<Item = u32> + use<'_, 'a> {
        let is_on = |index: &u32| {
            let directions = [Direction::Ingress, Direction::Egress].iter();
            directions
                .map(|direction| (*index, *direction))
                .all(|hook| self.attached.contains_key(&hook))
        };
        let ready = ways
            .iter()
            .filter(move |(_, hooks)| hooks.iter().all(is_on));
        ready.map(|(device, _)| *device)
    }

    /// Which of the `ways` to pods miss some.
    pub fn unready(&self, ways: &Ways) -> BTreeSet<u32> {
        let ready: BTreeSet<_> = self.ready(ways).collect();
        let all = ways.keys().copied();
        all.filter(|device| !ready.contains(device)).collect()
    }

    /// Attaches what is missing on the devices that are served, and takes it off the others. A device
    /// that fails keeps none of the others from being served.
    pub fn attach(&mut self, ebpf: &Ebpf, pins: &Peek, chosen: &[Device]) -> Look {
        let mut look = Look::default();
        let directory = pins.devices();
        for device in chosen {
            let mut problem = None;
            if let Some(role) = Role::of(&device.choice) {
                let before = self.roles.insert(device.index, role);
                let is_other = before.is_some_and(|before| before != role);
                for direction in [Direction::Egress, Direction::Ingress] {
                    let hook = Hook {
                        index: device.index,
                        device: device.name.clone(),
                        direction,
                    };
                    match self.hold(ebpf, &hook, (role, is_other), pins) {
                        Ok(changed) => look.changed += usize::from(changed),
                        Err(error) => problem = Some(error),
                    }
                }
            } else {
                for direction in [Direction::Ingress, Direction::Egress] {
                    let there = self.attached.remove(&(device.index, direction));
                    if let Some(Err(error)) =
                        there.map(|there| there.detach(&directory, &mut self.route))
                    {
                        tracing::warn!(device = device.name, %error, "a program stays on a device");
                    }
                }
            }
            look.seen.push(Seen {
                index: device.index,
                name: device.name.clone(),
                choice: device.choice.clone(),
                problem,
            });
        }
        let seen = &look.seen;
        let exists = |index: u32| seen.iter().any(|device| device.index == index);
        let before = self.attached.len();
        self.attached.retain(|(index, _), _| exists(*index));
        // Pins of devices that are gone stay otherwise.
        self.swept &= self.attached.len() == before;
        let attached = &self.attached;
        self.roles.retain(|index, role| match role {
            Role::Outside(_) => attached.contains_key(&(*index, Direction::Ingress)),
            // What an earlier agent left there stays, also where it cannot be taken over yet.
            Role::Pods => exists(*index),
        });
        if !self.swept && look.seen.iter().all(|device| device.problem.is_none()) {
            self.sweep(pins);
        }
        look
    }

    /// A device that is served stays so while it is there, even if nothing leads out of it any more: a
    /// route that is gone for a moment must not break connections.
    fn keep_served(&self, device: &mut Device) {
        let is_idle = matches!(
            device.choice,
            Choice::Not(Not::NothingLeadsThere | Not::Down)
        );
        if is_idle && let Some(Role::Outside(layer)) = self.roles.get(&device.index) {
            device.choice = Choice::Served {
                layer: *layer,
                why: Why::Before,
            };
        }
    }

    /// Makes sure that the right program is attached; `is_other`: that was another one until now. Whether something
    /// was changed for that.
    fn hold(
        &mut self,
        ebpf: &Ebpf,
        hook: &Hook,
        (role, is_other): (Role, bool),
        pins: &Peek,
    ) -> Result<bool, String> {
        let name = role.program(hook.direction);
        let fd = program_fd(ebpf, name).map_err(|error| error.to_string())?;
        let program = Program { name, fd };
        let directory = pins.devices();
        role.note(hook.index, &directory)
            .map_err(|error| error.to_string())?;
        let Some(there) = self.attached.get_mut(&(hook.index, hook.direction)) else {
            let attached = tc::attach(hook, program, &directory, &mut self.route)
                .map_err(|error| error.to_string())?;
            self.attached.insert((hook.index, hook.direction), attached);
            return Ok(true);
        };
        if is_other {
            there
                .mend(program, &directory, &mut self.route)
                .map_err(|error| error.to_string())?;
            return Ok(true);
        }
        let present = there
            .present(program, &mut self.route)
            .map_err(|error| error.to_string())?;
        if present.state == State::InForce && there.is_pinned(&directory) {
            return Ok(false);
        }
        there
            .mend(program, &directory, &mut self.route)
            .map_err(|error| error.to_string())?;
        tracing::warn!(
            layer = NAME,
            object = format!("program {name} at {hook}"),
            difference = found(present.state),
            "repaired"
        );
        Ok(true)
    }

    /// Ends what an earlier agent left on devices that are not served.
    fn sweep(&mut self, pins: &Peek) {
        let kept: Vec<_> = self.attached.values().collect();
        let swept = sweep(&kept, &pins.devices(), &mut self.route);
        for problem in &swept.problems {
            tracing::warn!(
                reason = problem.to_string(),
                "an earlier program may stay on a device"
            );
        }
        self.swept = swept.problems.is_empty();
    }
}

/// Which devices would be served, as far as that can be told without knowing by which addresses the
/// cluster knows the node. Changes nothing.
pub fn survey(patterns: &[Pattern], bypasses: &[Bypass]) -> io::Result<Vec<Device>> {
    let mut chosen = choose_all(
        &mut RouteSocket::default(),
        &[],
        patterns,
        &OrdSet::new(),
        &BTreeMap::new(),
    )?;
    spare(&mut chosen.devices, bypasses, false);
    Ok(chosen.devices)
}

/// Asks the kernel for all that the choice depends on.
fn choose_all(
    route: &mut RouteSocket,
    node: &[IpAddr],
    patterns: &[Pattern],
    masqueraded: &OrdSet<IpAddr>,
    roles: &BTreeMap<u32, Role>,
) -> io::Result<Chosen> {
    let links = route.links()?;
    let addresses = route.addresses()?;
    let routes = route.routes()?;
    let qdiscs = route.qdiscs()?;
    let facts = Facts {
        links: &links,
        addresses: &addresses,
        routes: &routes,
        node,
        patterns,
    };
    let devices = choose(facts, |link| of_others(link, &qdiscs, route));
    let served = devices.iter().filter(|device| device.served().is_some());
    let served: BTreeSet<u32> = served.map(|device| device.index).collect();
    let ways = pods::ways(facts, &served, masqueraded, |link| {
        // Of those that have our programs it was asked.
        if roles.contains_key(&link.index) {
            return Vec::new();
        }
        of_others(link, &qdiscs, route)
    });
    Ok(Chosen {
        devices,
        links,
        addresses,
        ways,
    })
}

/// The programs of others on a device, by name.
fn of_others(link: &Link, qdiscs: &[Qdisc], route: &mut RouteSocket) -> Vec<String> {
    let found = on(link, qdiscs, route).into_iter();
    let others = found.filter(|found| !found.is_ours());
    others.filter_map(|found| found.name).collect()
}

/// The programs on a device.
fn on(link: &Link, qdiscs: &[Qdisc], route: &mut RouteSocket) -> Vec<Found> {
    let mut there = qdiscs.iter().filter(|one| one.device == link.index);
    let has_filters = there.any(Qdisc::is_clsact);
    tc::on_device(link, has_filters, route).unwrap_or_default()
}

/// What was found in the place of what was attached.
fn found(state: State) -> &'static str {
    match state {
        State::InForce => "not pinned",
        State::Replaced(_) => "replaced",
        State::Detached => "detached",
    }
}
