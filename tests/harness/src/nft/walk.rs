//! The way of a packet through the hooks of a host, and through the chains there.
//!
//! ```text
//! from elsewhere ──> prerouting ─┬─> input       to the host itself
//!                                └─> forward ──> postrouting ──>
//! from the host ───> output ─────────────────> postrouting ─┬─>
//!                                                           └─> prerouting ──> input
//! ```

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context as _, Result, bail, ensure};
use proxy_model::{IpFamily, oracle::Packet};

use super::{
    field::{Data, Field, Value, Verdict, computed},
    statement::{Operand, Statement},
    table::{Chain, Hook, Place, Table},
};

/// What became of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Dropped,
    Rejected,
    Untouched,
    /// It has this destination now; true if the host is its source.
    Led(SocketAddr, bool),
}

/// One way that a packet may go.
#[derive(Debug)]
pub struct Run {
    pub end: End,
    /// What the rules will remember of it.
    pub kept: Vec<Kept>,
}

/// An element that a rule added to a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    set: String,
    key: Vec<Value>,
}

/// More chains than the kernel follows in one another.
const TOO_DEEP: usize = 16;

/// Every way that `packet` may go, with `kept` in the sets.
pub fn every_way(
    tables: &[Table],
    packet: &Packet,
    is_own: &dyn Fn(IpAddr) -> bool,
    kept: &[Kept],
) -> Result<Vec<Run>> {
    let mut choices = Choices::default();
    let mut runs = Vec::new();
    loop {
        let mut journey = Journey {
            tables,
            is_own,
            packet,
            destination: packet.destination,
            interface: packet.interface.as_deref().unwrap_or_default(),
            mark: 0,
            is_led: false,
            is_masqueraded: false,
            has_destination: false,
            hook: None,
            before: kept,
            kept: Vec::new(),
            choices: &mut choices,
        };
        let end = journey.end()?;
        let kept = journey.kept;
        runs.push(Run { end, kept });
        if !choices.go_on() {
            return Ok(runs);
        }
    }
}

/// Random choices, made in every way one after the other.
#[derive(Debug, Default)]
struct Choices {
    /// What was chosen, and of how many.
    made: Vec<(u64, u64)>,
    next: usize,
}

impl Choices {
    fn choose(&mut self, of: u64) -> u64 {
        if self.next == self.made.len() {
            self.made.push((0, of));
        }
        self.next += 1;
        self.made[self.next - 1].0
    }

    /// Begins again, with another choice; false if all were made.
    fn go_on(&mut self) -> bool {
        self.next = 0;
        while let Some((chosen, of)) = self.made.pop() {
            if chosen + 1 < of {
                self.made.push((chosen + 1, of));
                return true;
            }
        }
        false
    }
}

struct Journey<'a> {
    tables: &'a [Table],
    is_own: &'a dyn Fn(IpAddr) -> bool,
    packet: &'a Packet,
    /// The one that it has now.
    destination: SocketAddr,
    interface: &'a str,
    mark: u64,
    /// A rule gave it a destination.
    is_led: bool,
    is_masqueraded: bool,
    /// No rule gives it another destination any more.
    has_destination: bool,
    hook: Option<Hook>,
    before: &'a [Kept],
    kept: Vec<Kept>,
    choices: &'a mut Choices,
}

/// How a chain, or a rule, ends.
enum Flow<'a> {
    /// The next rule of this chain, or the one behind that which jumped to it.
    On,
    /// The one behind that which jumped here.
    Back,
    Into(&'a str),
    Accept,
    Gone(End),
}

impl<'a> Journey<'a> {
    fn end(&mut self) -> Result<End> {
        let places: &[Place] = if (self.is_own)(self.packet.source) {
            &[Place::Output, Place::Postrouting]
        } else {
            &[Place::Prerouting]
        };
        for place in places {
            if let Some(end) = self.meet(*place)? {
                return Ok(end);
            }
        }
        // The routing decision, by the destination that it has now.
        let is_sent = places.len() > 1;
        let places: &[Place] = match ((self.is_own)(self.destination.ip()), is_sent) {
            (true, true) => {
                self.interface = "lo";
                &[Place::Prerouting, Place::Input]
            }
            (true, false) => &[Place::Input],
            (false, true) => &[],
            (false, false) => &[Place::Forward, Place::Postrouting],
        };
        for place in places {
            if let Some(end) = self.meet(*place)? {
                return Ok(end);
            }
        }
        match (self.is_led, self.is_masqueraded) {
            (true, masqueraded) => Ok(End::Led(self.destination, masqueraded)),
            (false, false) => Ok(End::Untouched),
            (false, true) => bail!("it is masqueraded, and not led anywhere"),
        }
    }

    /// Goes through the chains of a hook; ends there if the packet is gone.
    fn meet(&mut self, place: Place) -> Result<Option<End>> {
        let family = IpFamily::of(self.packet.source);
        let tables = self.tables.iter().filter(|table| table.family == family);
        let mut chains: Vec<(&Table, &Chain, Hook)> = tables
            .flat_map(|table| table.chains.values().map(move |chain| (table, chain)))
            .filter_map(|(table, chain)| Some((table, chain, chain.hook?)))
            .filter(|(.., hook)| hook.place == place)
            .collect();
        chains.sort_by_key(|(.., hook)| hook.priority);
        for (table, chain, hook) in chains {
            let is_done = match place {
                Place::Postrouting => self.is_masqueraded,
                _ => self.has_destination,
            };
            if hook.is_nat && is_done {
                continue;
            }
            self.hook = Some(hook);
            if let Flow::Gone(end) = self.follow(table, chain, 0)? {
                return Ok(Some(end));
            }
            self.has_destination |= hook.is_nat && self.is_led;
        }
        // Also what was not translated here will not be any more.
        self.has_destination |= matches!(place, Place::Output | Place::Prerouting);
        Ok(None)
    }

    fn follow(&mut self, table: &'a Table, chain: &'a Chain, depth: usize) -> Result<Flow<'a>> {
        ensure!(depth < TOO_DEEP, "too many chains lead to one another");
        for rule in &chain.rules {
            let flow = self.rule(table, rule, depth)?;
            match flow {
                Flow::On => {}
                Flow::Back => return Ok(Flow::On),
                Flow::Into(chain) => {
                    let chain = &table.chains[chain];
                    return self.follow(table, chain, depth + 1);
                }
                Flow::Accept | Flow::Gone(_) => return Ok(flow),
            }
        }
        Ok(Flow::On)
    }

    fn rule(&mut self, table: &'a Table, rule: &'a [Statement], depth: usize) -> Result<Flow<'a>> {
        for statement in rule {
            match statement {
                Statement::Match {
                    fields,
                    is_in,
                    operand,
                } => {
                    if self.lookup(table, fields, operand)?.is_some() != *is_in {
                        return Ok(Flow::On);
                    }
                }
                Statement::Dispatch(fields, operand) => {
                    return match self.lookup(table, fields, operand)? {
                        Some(Data::Verdict(verdict)) => self.verdict(table, verdict, depth),
                        Some(other) => bail!("{other:?} is no verdict"),
                        None => Ok(Flow::On),
                    };
                }
                Statement::TranslateBy(fields, operand) => {
                    return match self.lookup(table, fields, operand)? {
                        Some(Data::Endpoint(endpoint)) => self.translate(*endpoint),
                        Some(other) => bail!("{other:?} is no endpoint"),
                        None => Ok(Flow::On),
                    };
                }
                Statement::TranslateTo(endpoint) => return self.translate(*endpoint),
                Statement::Masquerade => {
                    self.needs("masquerade", true, &[Place::Postrouting])?;
                    self.is_masqueraded = true;
                    return Ok(Flow::Accept);
                }
                Statement::SetMark(steps) => self.mark = computed(self.mark, steps),
                Statement::Update(set, fields) => {
                    let kept = Kept {
                        set: set.clone(),
                        key: self.values(fields),
                    };
                    self.kept.push(kept);
                }
                Statement::Reject => {
                    let places = [
                        Place::Prerouting,
                        Place::Input,
                        Place::Forward,
                        Place::Output,
                    ];
                    self.needs("reject", false, &places)?;
                    return Ok(Flow::Gone(End::Rejected));
                }
                Statement::Verdict(verdict) => return self.verdict(table, verdict, depth),
            }
        }
        Ok(Flow::On)
    }

    fn verdict(
        &mut self,
        table: &'a Table,
        verdict: &'a Verdict,
        depth: usize,
    ) -> Result<Flow<'a>> {
        Ok(match verdict {
            Verdict::Accept => Flow::Accept,
            Verdict::Drop => Flow::Gone(End::Dropped),
            Verdict::Return => Flow::Back,
            Verdict::Goto(chain) => Flow::Into(chain),
            Verdict::Jump(chain) => {
                let chain = &table.chains[chain];
                self.follow(table, chain, depth + 1)?
            }
        })
    }

    fn translate(&mut self, endpoint: SocketAddr) -> Result<Flow<'a>> {
        self.needs("dnat", true, &[Place::Prerouting, Place::Output])?;
        self.destination = endpoint;
        self.is_led = true;
        Ok(Flow::Accept)
    }

    /// The kernel takes some statements only in some hooks.
    fn needs(&self, what: &str, is_nat: bool, places: &[Place]) -> Result<()> {
        let hook = self.hook.context("no hook")?;
        ensure!(
            hook.is_nat == is_nat && places.contains(&hook.place),
            "`{what}` does not belong into {hook:?}"
        );
        Ok(())
    }

    fn lookup(
        &mut self,
        table: &'a Table,
        fields: &[Field],
        operand: &'a Operand,
    ) -> Result<Option<&'a Data>> {
        let key = self.values(fields);
        let set = match operand {
            Operand::Elements(elements) => return Ok(elements.get(&key)),
            Operand::Set(set) => set,
        };
        let mut kept = self.before.iter().chain(&self.kept);
        if kept.any(|kept| kept.set == *set && kept.key == key) {
            return Ok(Some(&Data::None));
        }
        let found = table.sets.get(set);
        let found = found.with_context(|| format!("no set {set}"))?;
        Ok(found.elements.get(&key))
    }

    fn values(&mut self, fields: &[Field]) -> Vec<Value> {
        fields.iter().map(|field| self.value(field)).collect()
    }

    fn value(&mut self, field: &Field) -> Value {
        let word = |word: &str| Value::Word(word.to_owned());
        match field {
            Field::Source => Value::Address(self.packet.source),
            Field::Destination => Value::Address(self.destination.ip()),
            Field::Protocol => Value::Word(self.packet.protocol.as_str().to_lowercase()),
            Field::Port => Value::Number(self.destination.port().into()),
            Field::Interface => {
                let arrives = [Place::Prerouting, Place::Input, Place::Forward];
                let arrives = self.hook.is_some_and(|hook| arrives.contains(&hook.place));
                word(if arrives { self.interface } else { "" })
            }
            Field::State => word("new"),
            // Led to where it goes anyway, it is not translated.
            Field::Status if self.destination != self.packet.destination => word("dnat"),
            Field::Status => word(""),
            Field::SourceType if (self.is_own)(self.packet.source) => word("local"),
            Field::SourceType => word("unicast"),
            Field::Mark(steps) => Value::Number(computed(self.mark, steps)),
            Field::Random { modulus, offset } => {
                Value::Number(offset + self.choices.choose(*modulus))
            }
        }
    }
}
