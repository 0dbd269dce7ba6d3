//! Tables: sets with their elements, chains with their rules, and that what is referred to is there.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use anyhow::{Context as _, Result, bail, ensure};
use proxy_model::IpFamily;

use super::{
    field::{Data, Elements, Value},
    statement::{Operand, Statement, rule},
    words::Words,
};
use crate::traced::way::Place;

/// A table of one family.
#[derive(Debug)]
pub struct Table {
    pub family: IpFamily,
    pub name: String,
    pub chains: BTreeMap<String, Chain>,
    pub sets: BTreeMap<String, Set>,
}

/// A set or map with a name.
#[derive(Debug, Default)]
pub struct Set {
    pub elements: Elements,
    /// How many fields a key has.
    fields: usize,
    is_map: bool,
    flags: Vec<String>,
}

/// A chain.
#[derive(Debug, Default)]
pub struct Chain {
    pub hook: Option<Hook>,
    pub rules: Vec<Vec<Statement>>,
}

/// Where the kernel enters a chain. Lower priorities come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hook {
    pub is_nat: bool,
    pub place: Place,
    pub priority: i32,
}

/// All tables of a text.
pub fn parse_all(text: &str) -> Result<Vec<Table>> {
    let mut words = Words::of(text);
    let mut tables = Vec::new();
    loop {
        words.skip_lines();
        if words.peek().is_none() {
            return Ok(tables);
        }
        let table = Table::parse(&mut words);
        tables.push(table.with_context(|| format!("line {}", words.line()))?);
    }
}

impl Table {
    fn parse(words: &mut Words<'_>) -> Result<Self> {
        words.expect("table")?;
        let family = match words.word()? {
            "ip" => IpFamily::V4,
            "ip6" => IpFamily::V6,
            other => bail!("no tables of family {other} are understood"),
        };
        let name = words.word()?.to_owned();
        let (mut chains, mut sets) = (BTreeMap::new(), BTreeMap::new());
        words.expect("{")?;
        loop {
            words.skip_lines();
            let kind = words.word()?;
            if kind == "}" {
                break;
            }
            let name = words.word()?.to_owned();
            if kind == "comment" {
                continue;
            }
            words.expect("{")?;
            let is_new = match kind {
                "chain" => chains
                    .insert(name.clone(), Chain::parse(words, family)?)
                    .is_none(),
                "set" | "map" => sets
                    .insert(name.clone(), Set::parse(words, kind == "map")?)
                    .is_none(),
                other => bail!("a table has no {other}"),
            };
            ensure!(is_new, "there are two of {name}");
        }
        Ok(Self {
            family,
            name,
            chains,
            sets,
        })
    }

    /// Everything that is referred to must be there, and have the form that it is used in.
    pub fn check(&self) -> Result<()> {
        for (name, set) in &self.sets {
            set.check(self).with_context(|| format!("set {name}"))?;
        }
        for (name, chain) in &self.chains {
            for rule in &chain.rules {
                for statement in rule {
                    self.check_statement(statement)
                        .with_context(|| format!("chain {name}: {statement:?}"))?;
                }
            }
        }
        Ok(())
    }

    fn check_statement(&self, statement: &Statement) -> Result<()> {
        if let Statement::Verdict(verdict) = statement {
            self.check_chain(verdict.chain())?;
        }
        if let Statement::Update(set, fields) = statement {
            let found = self
                .sets
                .get(set)
                .with_context(|| format!("no set {set}"))?;
            ensure!(found.flags.iter().any(|flag| flag == "dynamic"));
            ensure!(found.fields == fields.len(), "{set} has other keys");
        }
        let Some((fields, operand)) = statement.lookup() else {
            return Ok(());
        };
        match operand {
            Operand::Set(set) => {
                let found = self
                    .sets
                    .get(set)
                    .with_context(|| format!("no set {set}"))?;
                let needs_map = !matches!(statement, Statement::Match { .. });
                ensure!(found.is_map == needs_map, "{set} is of the other kind");
                ensure!(found.fields == fields.len(), "{set} has other keys");
            }
            Operand::Elements(elements) => self.check_elements(elements, fields.len())?,
        }
        Ok(())
    }

    fn check_chain(&self, chain: Option<&str>) -> Result<()> {
        if let Some(chain) = chain {
            let found = self.chains.get(chain);
            let found = found.with_context(|| format!("no chain {chain}"))?;
            ensure!(found.hook.is_none(), "nothing may lead to {chain}");
        }
        Ok(())
    }

    fn check_elements(&self, elements: &Elements, fields: usize) -> Result<()> {
        for (key, data) in elements.iter() {
            ensure!(key.len() == fields, "{key:?} has not {fields} fields");
            for value in key {
                if let Value::Address(address) = value {
                    self.check_family(*address)?;
                }
            }
            match data {
                Data::None => {}
                Data::Verdict(verdict) => self.check_chain(verdict.chain())?,
                Data::Endpoint(endpoint) => self.check_family(endpoint.ip())?,
            }
        }
        for end in elements.ends() {
            self.check_family(end)?;
        }
        Ok(())
    }

    fn check_family(&self, address: IpAddr) -> Result<()> {
        ensure!(
            IpFamily::of(address) == self.family,
            "{address} is of another family"
        );
        Ok(())
    }

    /// Adds `address` to the set `name`, if there is one and it is of this family.
    pub fn set_mut(&mut self, name: &str, address: IpAddr) -> Option<&mut Set> {
        let is_ours = IpFamily::of(address) == self.family;
        let set = self.sets.get_mut(name).filter(|_| is_ours)?;
        let key = vec![Value::Address(address)];
        set.elements.insert(key, Data::None).ok()?;
        Some(set)
    }

    /// Every address and port that a map leads from; those without an address on each of `node`.
    pub fn destinations(&self, node: &[IpAddr]) -> Vec<(SocketAddr, String)> {
        let mut found = Vec::new();
        let maps = self.sets.values().filter(|set| set.is_map);
        for (key, _) in maps.flat_map(|set| set.elements.iter()) {
            let (addresses, protocol, port) = match &key[..] {
                [
                    Value::Address(address),
                    Value::Word(protocol),
                    Value::Number(port),
                ] => (vec![*address], protocol, port),
                [Value::Word(protocol), Value::Number(port)] => (node.to_vec(), protocol, port),
                _ => continue,
            };
            let Ok(port) = u16::try_from(*port) else {
                continue;
            };
            let addresses = addresses.into_iter();
            found.extend(addresses.map(|one| (SocketAddr::new(one, port), protocol.clone())));
        }
        found
    }
}

impl Set {
    fn parse(words: &mut Words<'_>, is_map: bool) -> Result<Self> {
        let mut set = Self {
            is_map,
            ..Self::default()
        };
        loop {
            words.skip_lines();
            match words.word()? {
                "}" => return Ok(set),
                "elements" => {
                    words.expect("=")?;
                    set.elements = Elements::parse(words)?;
                }
                "type" | "typeof" => {
                    let declared = words.rest_of_line();
                    let key = declared.iter().take_while(|word| **word != ":");
                    set.fields = 1 + key.filter(|word| **word == ".").count();
                    ensure!(
                        declared.contains(&":") == is_map,
                        "a map has a type for what it leads to, a set has none"
                    );
                }
                "flags" => {
                    let flags = words.rest_of_line().into_iter();
                    set.flags = flags.map(ToOwned::to_owned).collect();
                }
                "comment" | "size" | "timeout" => drop(words.rest_of_line()),
                other => bail!("a set has no {other}"),
            }
        }
    }

    fn check(&self, table: &Table) -> Result<()> {
        ensure!(self.fields > 0, "it has no type");
        let has_intervals = self.flags.iter().any(|flag| flag == "interval");
        ensure!(
            has_intervals || !self.elements.has_ranges(),
            "it has ranges, and no flag `interval`"
        );
        for (key, data) in self.elements.iter() {
            ensure!(
                self.is_map != (*data == Data::None),
                "{key:?} leads to {data:?}"
            );
        }
        table.check_elements(&self.elements, self.fields)
    }
}

impl Chain {
    fn parse(words: &mut Words<'_>, family: IpFamily) -> Result<Self> {
        let mut chain = Self::default();
        loop {
            words.skip_lines();
            if words.take("}") {
                return Ok(chain);
            }
            if words.take("comment") {
                words.word()?;
            } else if words.take("type") {
                chain.hook = Some(Hook::parse(words)?);
            } else {
                chain.rules.push(rule(words, family)?);
            }
        }
    }
}

impl Hook {
    /// What follows `type`.
    fn parse(words: &mut Words<'_>) -> Result<Self> {
        let is_nat = match words.word()? {
            "nat" => true,
            "filter" => false,
            other => bail!("chains of type {other} are not understood"),
        };
        words.expect("hook")?;
        let place = match words.word()? {
            "prerouting" => Place::Prerouting,
            "input" => Place::Input,
            "forward" => Place::Forward,
            "output" => Place::Output,
            "postrouting" => Place::Postrouting,
            other => bail!("there is no hook {other}"),
        };
        words.expect("priority")?;
        let base = match (words.word()?, place) {
            ("dstnat", Place::Prerouting) => -100,
            ("srcnat", Place::Postrouting) => 100,
            ("filter", _) => 0,
            (text, _) => text
                .parse()
                .with_context(|| format!("{text:?} is no priority at {place:?}"))?,
        };
        let sign = match words.word()? {
            "+" => 1,
            "-" => -1,
            ";" => 0,
            other => bail!("{other:?} comes after a priority"),
        };
        let mut priority = base;
        if sign != 0 {
            let more = words.word()?;
            let more: i32 = more
                .parse()
                .with_context(|| format!("{more:?} is no number"))?;
            priority += sign * more;
            words.expect(";")?;
        }
        ensure!(words.take_all("policy accept ;"), "the policy is `accept`");
        Ok(Self {
            is_nat,
            place,
            priority,
        })
    }
}
