//! How a packet goes through the tables at a hook, and through the chains that these lead to.

use std::net::IpAddr;

use anyhow::{Context as _, Result, bail, ensure};
use proxy_model::oracle::Packet;

use super::{
    matches::{Match, State, What},
    rule::{Rule, Target},
    table::{Chains, Table, Tables, base},
};
use crate::traced::{
    End, Run,
    choices::Choices,
    way::{self, Met, Place, TOO_DEEP, Underway},
};

/// A list in which the client is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    list: String,
}

/// Every way that `packet` may go, while its source is in the lists of `kept`.
pub fn every_way(
    tables: &Tables,
    packet: &Packet,
    is_own: &dyn Fn(IpAddr) -> bool,
    kept: &[Kept],
) -> Result<Vec<Run<Kept>>> {
    way::every_way(|choices| {
        let mut journey = Journey {
            tables,
            on: Underway::new(packet, is_own),
            place: Place::Prerouting,
            before: kept,
            kept: Vec::new(),
            choices,
        };
        let end = way::end(&mut journey)?;
        Ok((end, journey.kept))
    })
}

struct Journey<'a> {
    tables: &'a Tables,
    on: Underway<'a>,
    place: Place,
    before: &'a [Kept],
    kept: Vec<Kept>,
    choices: &'a mut Choices,
}

/// How a rule, or a chain, ends.
enum Flow {
    /// The next rule, or the one behind that which led here.
    On,
    /// The one behind that which led here.
    Back,
    /// The next table.
    Accept,
    Gone(End),
}

impl<'a> Met<'a> for Journey<'a> {
    fn underway(&mut self) -> &mut Underway<'a> {
        &mut self.on
    }

    fn meet(&mut self, place: Place) -> Result<Option<End>> {
        self.place = place;
        for table in Table::at(place) {
            let is_nat = *table == Table::Nat;
            let Some(chains) = self.tables.get(table) else {
                continue;
            };
            if is_nat && self.on.is_settled(place) {
                continue;
            }
            if let Flow::Gone(end) = self.follow(chains, base(place), 0)? {
                return Ok(Some(end));
            }
        }
        Ok(None)
    }
}

impl<'a> Journey<'a> {
    fn follow(&mut self, chains: &'a Chains, name: &str, depth: usize) -> Result<Flow> {
        ensure!(depth < TOO_DEEP, "too many chains lead to one another");
        let chain = chains.get(name);
        for rule in chain.with_context(|| format!("no chain {name}"))? {
            if !self.matches(rule) {
                continue;
            }
            match self.act(chains, &rule.target, depth)? {
                Flow::On => {}
                Flow::Back => return Ok(Flow::On),
                ends => return Ok(ends),
            }
        }
        Ok(Flow::On)
    }

    fn matches(&mut self, rule: &Rule) -> bool {
        // In order, and no further than the first that is not true: what is behind it happens to nobody.
        rule.matches.iter().all(|one| self.is(one))
    }

    fn is(&mut self, one: &Match) -> bool {
        let on = &self.on;
        let to = on.destination;
        let is = match &one.what {
            What::Source(net) => net.contains(&on.packet.source),
            What::Destination(net) => net.contains(&to.ip()),
            What::Interface { name, begins } => {
                let arrived = on.arrived_on(self.place);
                arrived == name || *begins && arrived.starts_with(&**name)
            }
            What::Protocol(protocol) => on.packet.protocol == *protocol,
            What::Dialled(net) => net.contains(&on.packet.destination.ip()),
            What::Port(port) => to.port() == *port,
            What::States(states) => states.iter().any(|state| match state {
                State::New => true,
                State::Dnat => on.is_translated(),
                State::Other => false,
            }),
            What::SourceIsLocal => (on.is_own)(on.packet.source),
            What::DestinationIsLocal => (on.is_own)(to.ip()),
            What::Mark { value, mask } => on.mark & mask == *value,
            What::Chance(chance) => self.choices.happens(*chance),
            What::IsIn(list) => {
                let mut kept = self.before.iter().chain(&self.kept);
                kept.any(|kept| kept.list == *list)
            }
            What::PutInto(list) => {
                self.kept.push(Kept { list: list.clone() });
                true
            }
        };
        is != one.is_not
    }

    fn act(&mut self, chains: &'a Chains, target: &Target, depth: usize) -> Result<Flow> {
        Ok(match target {
            Target::Nothing => Flow::On,
            Target::Accept => Flow::Accept,
            Target::Return => Flow::Back,
            Target::Drop => Flow::Gone(End::Dropped),
            Target::Reject => Flow::Gone(End::Rejected),
            Target::Mark { value, mask } => {
                self.on.mark = self.on.mark & !mask ^ value;
                Flow::On
            }
            Target::Dnat(to) => {
                self.needs("DNAT", &[Place::Prerouting, Place::Output])?;
                self.on.destination = *to;
                self.on.is_led = true;
                Flow::Accept
            }
            Target::Masquerade => {
                self.needs("MASQUERADE", &[Place::Postrouting])?;
                self.on.is_masqueraded = true;
                Flow::Accept
            }
            Target::Jump(chain) => self.follow(chains, chain, depth + 1)?,
        })
    }

    /// The kernel takes some targets only at some hooks.
    fn needs(&self, what: &str, places: &[Place]) -> Result<()> {
        if !places.contains(&self.place) {
            bail!("{what} does not belong into {:?}", self.place);
        }
        Ok(())
    }
}
