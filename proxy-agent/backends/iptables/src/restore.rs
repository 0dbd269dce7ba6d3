//! What `iptables-restore --noflush` is given: per table chains that are emptied, rules, chains that are
//! removed. Each table comes into force as a whole. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::Arc,
};

use crate::{rule::Rule, table::Table};

/// What is to be written.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Restore {
    tables: BTreeMap<Table, Section>,
    leads_first: bool,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Section {
    /// Chains that are made, or emptied.
    emptied: BTreeSet<Arc<str>>,
    rules: String,
    count: usize,
    removed: BTreeSet<Arc<str>>,
    growth: isize,
}

impl Restore {
    /// Nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts `rules` in the place of what is in a chain, which is made if it is missing.
    pub fn chain(&mut self, table: Table, name: &Arc<str>, rules: &[Rule]) {
        let section = self.tables.entry(table).or_default();
        section.emptied.insert(Arc::clone(name));
        section.removed.remove(name);
        for rule in rules {
            section.write("-A", name, rule);
        }
    }

    /// Removes a chain, to which nothing leads any more.
    pub fn remove(&mut self, table: Table, name: &Arc<str>) {
        let section = self.tables.entry(table).or_default();
        section.emptied.insert(Arc::clone(name));
        section.removed.insert(Arc::clone(name));
    }

    /// Puts a rule before all others of a chain that is not ours.
    pub fn insert(&mut self, table: Table, chain: &str, rule: &Rule) {
        self.tables
            .entry(table)
            .or_default()
            .write("-I", chain, rule);
    }

    /// Takes a rule out of a chain that is not ours.
    pub fn delete(&mut self, table: Table, chain: &str, rule: &Rule) {
        self.tables
            .entry(table)
            .or_default()
            .write("-D", chain, rule);
    }

    /// Says that the table has so many more rules, or fewer, once this is written.
    pub fn grow(&mut self, table: Table, rules: isize) {
        if let Some(section) = self.tables.get_mut(&table) {
            section.growth += rules;
        }
    }

    /// By how many rules a table grows, as far as that was said.
    pub fn growth(&self, table: Table) -> isize {
        self.tables.get(&table).map_or(0, |section| section.growth)
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// How many rules are written to a table.
    pub fn rules(&self, table: Table) -> usize {
        self.tables.get(&table).map_or(0, |section| section.count)
    }

    /// Chains and rules that are written.
    pub fn writes(&self) -> usize {
        let sections = self.tables.values();
        sections
            .map(|section| section.emptied.len() + section.count)
            .sum()
    }

    /// The tables that are written.
    pub fn tables(&self) -> impl Iterator<Item = Table> {
        self.tables.keys().copied()
    }

    /// As `iptables-restore` takes it.
    pub fn text(&self) -> String {
        let length = self
            .tables
            .values()
            .map(|section| section.rules.len() + 64 * section.emptied.len() + 32);
        let mut text = String::with_capacity(length.sum());
        let mut tables: Vec<_> = self.tables.iter().collect();
        if self.leads_first {
            tables.reverse();
        }
        for (table, section) in tables {
            section
                .render(*table, &mut text)
                .expect("writing to a string cannot fail");
        }
        text
    }

    /// Each table comes into force by itself. What is refused no more is led somewhere before that: in between,
    /// conntrack would take a connection for one that nobody translates, and remember it.
    pub fn lead_first(&mut self) {
        self.leads_first = true;
    }
}

impl Section {
    fn write(&mut self, command: &str, chain: &str, rule: &Rule) {
        self.count += 1;
        writeln!(self.rules, "{command} {chain} {rule}").expect("writing to a string cannot fail");
    }

    fn render(&self, table: Table, text: &mut String) -> std::fmt::Result {
        writeln!(text, "*{}", table.name())?;
        for chain in &self.emptied {
            writeln!(text, ":{chain} - [0:0]")?;
        }
        text.push_str(&self.rules);
        for chain in &self.removed {
            writeln!(text, "-X {chain}")?;
        }
        writeln!(text, "COMMIT")
    }
}
