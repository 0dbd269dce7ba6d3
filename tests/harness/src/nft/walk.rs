//! How a packet goes through the chains at a hook, and through those that these lead to.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context as _, Result, bail, ensure};
use proxy_model::{IpFamily, oracle::Packet};

use super::{
    field::{Data, Field, Value, Verdict, computed},
    statement::{Operand, Statement},
    table::{Chain, Hook, Table},
};
use crate::traced::{
    End, Run,
    choices::Choices,
    way::{self, Met, Place, TOO_DEEP, Underway},
};

/// An element that a rule added to a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    set: String,
    key: Vec<Value>,
}

/// Every way that `packet` may go, with `kept` in the sets.
pub fn every_way(
    tables: &[Table],
    packet: &Packet,
    is_own: &dyn Fn(IpAddr) -> bool,
    kept: &[Kept],
) -> Result<Vec<Run<Kept>>> {
    way::every_way(|choices| {
        let mut journey = Journey {
            tables,
            on: Underway::new(packet, is_own),
            hook: None,
            before: kept,
            kept: Vec::new(),
            choices,
        };
        let end = way::end(&mut journey)?;
        Ok((end, journey.kept))
    })
}

struct Journey<'a> {
    tables: &'a [Table],
    on: Underway<'a>,
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

impl<'a> Met<'a> for Journey<'a> {
    fn underway(&mut self) -> &mut Underway<'a> {
        &mut self.on
    }

    fn meet(&mut self, place: Place) -> Result<Option<End>> {
        let family = IpFamily::of(self.on.packet.source);
        let tables = self.tables.iter().filter(|table| table.family == family);
        let mut chains: Vec<(&Table, &Chain, Hook)> = tables
            .flat_map(|table| table.chains.values().map(move |chain| (table, chain)))
            .filter_map(|(table, chain)| Some((table, chain, chain.hook?)))
            .filter(|(.., hook)| hook.place == place)
            .collect();
        chains.sort_by_key(|(.., hook)| hook.priority);
        for (table, chain, hook) in chains {
            if hook.is_nat && self.on.is_settled(place) {
                continue;
            }
            self.hook = Some(hook);
            if let Flow::Gone(end) = self.follow(table, chain, 0)? {
                return Ok(Some(end));
            }
            self.on.has_destination |= hook.is_nat && self.on.is_led;
        }
        Ok(None)
    }
}

impl<'a> Journey<'a> {
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
                    self.on.is_masqueraded = true;
                    return Ok(Flow::Accept);
                }
                Statement::SetMark(steps) => self.on.mark = computed(self.on.mark, steps),
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
        self.on.destination = endpoint;
        self.on.is_led = true;
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
            Field::Source => Value::Address(self.on.packet.source),
            Field::Destination => Value::Address(self.on.destination.ip()),
            Field::Protocol => Value::Word(self.on.packet.protocol.as_str().to_lowercase()),
            Field::Port => Value::Number(self.on.destination.port().into()),
            Field::Interface => {
                let on = |hook: Hook| self.on.arrived_on(hook.place);
                word(self.hook.map_or("", on))
            }
            Field::State => word("new"),
            Field::Status if self.on.is_translated() => word("dnat"),
            Field::Status => word(""),
            Field::SourceType if (self.on.is_own)(self.on.packet.source) => word("local"),
            Field::SourceType => word("unicast"),
            Field::Mark(steps) => Value::Number(computed(self.on.mark, steps)),
            Field::Random { modulus, offset } => {
                Value::Number(offset + self.choices.one_of(*modulus))
            }
        }
    }
}
