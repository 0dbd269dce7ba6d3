//! Tables of one family: their chains, and that what is referred to is there.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};
use proxy_model::IpFamily;

use super::rule::{Rule, Target};
use crate::traced::way::Place;

/// By their names.
pub type Tables = BTreeMap<Table, Chains>;

/// The chains of a table, by their names.
pub type Chains = BTreeMap<String, Vec<Rule>>;

/// A table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    Mangle,
    Nat,
    Filter,
}

/// The chains that the kernel enters.
const BASE: [(&str, Place); 5] = [
    ("PREROUTING", Place::Prerouting),
    ("INPUT", Place::Input),
    ("FORWARD", Place::Forward),
    ("OUTPUT", Place::Output),
    ("POSTROUTING", Place::Postrouting),
];

impl Table {
    fn named(name: &str) -> Result<Self> {
        Ok(match name {
            "mangle" => Self::Mangle,
            "nat" => Self::Nat,
            "filter" => Self::Filter,
            other => bail!("no table {other} is known"),
        })
    }

    /// Those that a packet meets at a hook, in order.
    pub const fn at(place: Place) -> &'static [Self] {
        match place {
            Place::Prerouting | Place::Postrouting => &[Self::Mangle, Self::Nat],
            Place::Output => &[Self::Mangle, Self::Nat, Self::Filter],
            Place::Input => &[Self::Mangle, Self::Filter, Self::Nat],
            Place::Forward => &[Self::Mangle, Self::Filter],
        }
    }
}

/// The chain that the kernel enters at a hook.
pub fn base(place: Place) -> &'static str {
    let mut all = BASE.iter();
    let found = all.find(|(_, one)| *one == place);
    found.map_or("", |(name, _)| name)
}

/// Understands tables as `iptables-restore` takes them.
pub fn parse(family: IpFamily, text: &str) -> Result<Tables> {
    let mut tables = Tables::new();
    let mut open: Option<(Table, Chains)> = None;
    for (number, line) in (1..).zip(text.lines()) {
        let read = read(family, line, &mut open, &mut tables);
        read.with_context(|| format!("line {number}: {line}"))?;
    }
    ensure!(open.is_none(), "the last table is not committed");
    for (table, chains) in &tables {
        check(*table, chains)?;
    }
    Ok(tables)
}

fn read(
    family: IpFamily,
    line: &str,
    open: &mut Option<(Table, Chains)>,
    tables: &mut Tables,
) -> Result<()> {
    if line.is_empty() || line.starts_with('#') {
        return Ok(());
    }
    if let Some(name) = line.strip_prefix('*') {
        ensure!(open.is_none(), "the table before is not committed");
        let table = Table::named(name)?;
        let at = |(_, place): &&(&str, Place)| Table::at(*place).contains(&table);
        let base = BASE.iter().filter(at);
        *open = Some((
            table,
            base.map(|(name, _)| ((*name).to_owned(), Vec::new()))
                .collect(),
        ));
        return Ok(());
    }
    if line == "COMMIT" {
        let (table, chains) = open.take().context("no table is open")?;
        let before = tables.insert(table, chains);
        ensure!(before.is_none(), "there are two of the table");
        return Ok(());
    }
    let (_, chains) = open.as_mut().context("no table is open")?;
    if let Some(declared) = line.strip_prefix(':') {
        let (name, policy) = declared.split_once(' ').context("no policy")?;
        let is_base = BASE.iter().any(|(base, _)| *base == name);
        let wanted = if is_base { "ACCEPT" } else { "-" };
        let policy = policy.split(' ').next().unwrap_or_default();
        ensure!(policy == wanted, "its policy is {policy}");
        let before = chains.insert(name.to_owned(), Vec::new());
        ensure!(is_base || before.is_none(), "there are two of {name}");
        return Ok(());
    }
    let (command, rest) = line.split_once(' ').context("it says nothing")?;
    let (name, rule) = rest.split_once(' ').unwrap_or((rest, ""));
    let rule = Rule::parse(rule, family)?;
    let chain = chains.get_mut(name);
    let chain = chain.with_context(|| format!("no chain {name}"))?;
    match command {
        "-A" => chain.push(rule),
        // Before all others.
        "-I" => chain.insert(0, rule),
        other => bail!("{other:?} is not known"),
    }
    Ok(())
}

/// Where a rule leads must be a chain, and not one that the kernel enters; what it does must be possible there.
fn check(table: Table, chains: &Chains) -> Result<()> {
    for (name, rules) in chains {
        for rule in rules {
            match &rule.target {
                Target::Jump(to) => {
                    let is_base = BASE.iter().any(|(base, _)| base == to);
                    ensure!(!is_base, "nothing may lead to {to}, as {name} does");
                    ensure!(chains.contains_key(to), "no chain {to}, for {name}");
                }
                Target::Dnat(_) | Target::Masquerade if table != Table::Nat => {
                    bail!("{name} in the table {table:?} cannot translate");
                }
                Target::Reject if table != Table::Filter => {
                    bail!("{name} in the table {table:?} cannot refuse");
                }
                Target::Drop if table == Table::Nat => {
                    bail!("{name} in the table {table:?} cannot drop");
                }
                _ => {}
            }
        }
    }
    Ok(())
}
