//! Tables as the kernel holds them, and what a message does to them: as `nf_tables_api.c` of Linux has it,
//! in what the backend relies on.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    fmt::Debug,
};

use crate::names;

use proxy_netlink::{
    attributes::{self, Read},
    message::{NLM_F_EXCL, NetlinkBuffer, attributes as of_message},
    nf_tables as abi,
};

/// Attributes as they were given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Given(pub Vec<(u16, Vec<u8>)>);

impl Given {
    fn of(read: Read<'_>, without: &[u16]) -> Self {
        let all = read.each().filter(|(kind, _)| !without.contains(kind));
        Self(all.map(|(kind, value)| (kind, value.to_vec())).collect())
    }

    /// The value of this kind.
    pub fn get(&self, kind: u16) -> Option<&[u8]> {
        let mut all = self.0.iter();
        all.find(|(one, _)| *one == kind)
            .map(|(_, value)| &value[..])
    }
}

/// All tables, by family and name.
pub type Tables = BTreeMap<(u8, String), Table>;

/// A table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    pub flags: u32,
    pub chains: BTreeMap<String, Chain>,
    pub sets: BTreeMap<String, Set>,
}

/// A chain with its rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chain {
    pub given: Given,
    pub rules: Vec<Rule>,
}

/// A rule, and what it names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rule {
    pub given: Given,
    pub chains: BTreeSet<String>,
    pub sets: BTreeSet<String>,
}

/// A set with its elements, by key and flags.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Set {
    pub given: Given,
    pub elements: BTreeMap<(Vec<u8>, u32), Element>,
}

/// An element, and the chain that it leads to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Element {
    pub given: Given,
    pub chain: Option<String>,
}

impl Table {
    /// How many rules and elements lead to the chain of this name.
    pub fn ways_to(&self, name: &str) -> usize {
        let rules = self.chains.values().flat_map(|chain| &chain.rules);
        let rules = rules.filter(|rule| rule.chains.contains(name));
        rules.count() + self.elements_to(name)
    }

    fn elements_to(&self, name: &str) -> usize {
        let elements = self.sets.values().flat_map(|set| set.elements.values());
        let elements = elements.filter(|element| element.chain.as_deref() == Some(name));
        elements.count()
    }

    fn add(&mut self, set: &str, key: (Vec<u8>, u32), element: Element) -> Result<(), i32> {
        let leads_to = element.chain.as_ref();
        if leads_to.is_some_and(|chain| !self.chains.contains_key(chain)) {
            return Err(libc::ENOENT);
        }
        let set = self.sets.get_mut(set).ok_or(libc::ENOENT)?;
        match set.elements.entry(key) {
            Entry::Occupied(there) if *there.get() != element => Err(libc::EBUSY),
            Entry::Occupied(_) => Ok(()),
            Entry::Vacant(place) => {
                place.insert(element);
                Ok(())
            }
        }
    }

    /// What packets can meet: chains that can be reached from a hook, and the sets that are looked at there.
    /// What rules remember by themselves is left out.
    pub fn met(&self) -> Self {
        let mut met = Self {
            flags: self.flags,
            ..Self::default()
        };
        let hooked =
            |(_, chain): &(&String, &Chain)| chain.given.get(abi::NFTA_CHAIN_HOOK).is_some();
        let mut next: Vec<&String> = self
            .chains
            .iter()
            .filter(hooked)
            .map(|(name, _)| name)
            .collect();
        while let Some(name) = next.pop() {
            let (Entry::Vacant(place), Some(chain)) =
                (met.chains.entry(name.clone()), self.chains.get(name))
            else {
                continue;
            };
            place.insert(chain.clone());
            for rule in &chain.rules {
                next.extend(&rule.chains);
                for name in &rule.sets {
                    let set = &self.sets[name];
                    next.extend(set.elements.values().filter_map(|one| one.chain.as_ref()));
                    let mut set = set.clone();
                    if is_dynamic(&set) {
                        set.elements.clear();
                    }
                    met.sets.insert(name.clone(), set);
                }
            }
        }
        met
    }
}

/// Every object in a line, with a hash over the rest of it.
pub fn lines(tables: &Tables) -> BTreeSet<String> {
    let hash = |held: &dyn Debug| names::hash(&[&format!("{held:?}")]);
    let mut lines = BTreeSet::new();
    for ((family, table), held) in tables {
        lines.insert(format!("{family} {table} flags {}", held.flags));
        for (name, chain) in &held.chains {
            lines.insert(format!("{family} chain {name} {:x}", hash(&chain.given)));
            for (number, rule) in chain.rules.iter().enumerate() {
                lines.insert(format!(
                    "{family} chain {name} rule {number} {:x}",
                    hash(rule)
                ));
            }
        }
        for (name, set) in &held.sets {
            lines.insert(format!("{family} set {name} {:x}", hash(&set.given)));
            for (key, element) in &set.elements {
                lines.insert(format!(
                    "{family} set {name} element {key:?} {:x}",
                    hash(element)
                ));
            }
        }
    }
    lines
}

/// Whether rules put elements into it.
pub fn is_dynamic(set: &Set) -> bool {
    let flags = set.given.get(abi::NFTA_SET_FLAGS);
    let flags = flags.and_then(|flags| Some(u32::from_be_bytes(flags.try_into().ok()?)));
    flags.unwrap_or(0) & abi::NFT_SET_EVAL != 0
}

/// Does what `message` of a batch says, or returns why not. `begin`: the tables before the batch. To
/// kernels before 6.2 an element leads to its chain until the batch is over, and so it does here; `held`: a
/// chain to which one leads still longer.
pub fn apply(
    tables: &mut Tables,
    begin: &Tables,
    held: Option<&str>,
    message: &NetlinkBuffer<&[u8]>,
) -> Result<(), i32> {
    let read = Read(of_message(message));
    let family = message.payload()[0];
    let name = read.text(abi::NFTA_TABLE_NAME).ok_or(libc::EINVAL)?;
    let place = (family, name.to_owned());
    let excl = message.flags() & NLM_F_EXCL != 0;
    match message.message_type() & 0xff {
        abi::NFT_MSG_NEWTABLE => {
            if excl && tables.contains_key(&place) {
                return Err(libc::EEXIST);
            }
            tables.entry(place).or_default();
            return Ok(());
        }
        abi::NFT_MSG_DELTABLE => return tables.remove(&place).map(drop).ok_or(libc::ENOENT),
        _ => {}
    }
    let before = begin.get(&place);
    let table = tables.get_mut(&place).ok_or(libc::ENOENT)?;
    match message.message_type() & 0xff {
        abi::NFT_MSG_NEWCHAIN => {
            let name = read.text(abi::NFTA_CHAIN_NAME).ok_or(libc::EINVAL)?;
            let given = Given::of(read, &[]);
            let chain = table.chains.entry(name.to_owned()).or_insert(Chain {
                given: given.clone(),
                rules: Vec::new(),
            });
            let hook = |given: &Given| given.get(abi::NFTA_CHAIN_HOOK).map(<[u8]>::to_vec);
            (hook(&given) == hook(&chain.given))
                .then_some(())
                .ok_or(libc::EEXIST)
        }
        abi::NFT_MSG_DELCHAIN => {
            let name = read.text(abi::NFTA_CHAIN_NAME).ok_or(libc::EINVAL)?;
            let chain = table.chains.get_mut(name).ok_or(libc::ENOENT)?;
            chain.rules.clear();
            let before = before.map_or(0, |before| before.elements_to(name));
            if table.ways_to(name) + before > 0 || held == Some(name) {
                return Err(libc::EBUSY);
            }
            table.chains.remove(name);
            Ok(())
        }
        abi::NFT_MSG_NEWRULE => {
            let name = read.text(abi::NFTA_RULE_CHAIN).ok_or(libc::EINVAL)?;
            let rule = rule(read);
            let there = rule.chains.iter().all(|one| table.chains.contains_key(one))
                && rule.sets.iter().all(|one| table.sets.contains_key(one));
            let chain = table.chains.get_mut(name).filter(|_| there);
            chain.ok_or(libc::ENOENT)?.rules.push(rule);
            Ok(())
        }
        abi::NFT_MSG_DELRULE => {
            let name = read.text(abi::NFTA_RULE_CHAIN).ok_or(libc::EINVAL)?;
            table
                .chains
                .get_mut(name)
                .ok_or(libc::ENOENT)?
                .rules
                .clear();
            Ok(())
        }
        abi::NFT_MSG_NEWSET => {
            let name = read.text(abi::NFTA_SET_NAME).ok_or(libc::EINVAL)?;
            let given = Given::of(read, &[abi::NFTA_SET_ID]);
            let set = table.sets.entry(name.to_owned()).or_insert(Set {
                given: given.clone(),
                elements: BTreeMap::new(),
            });
            (set.given == given).then_some(()).ok_or(libc::EEXIST)
        }
        abi::NFT_MSG_DELSET => {
            let name = read.text(abi::NFTA_SET_NAME).ok_or(libc::EINVAL)?;
            let rules = table.chains.values().flat_map(|chain| &chain.rules);
            let in_use = rules.flat_map(|rule| &rule.sets).any(|set| set == name);
            if in_use {
                return Err(libc::EBUSY);
            }
            table.sets.remove(name).map(drop).ok_or(libc::ENOENT)
        }
        abi::NFT_MSG_NEWSETELEM => elements(read, |set, key, one| table.add(set, key, one)),
        abi::NFT_MSG_DELSETELEM => elements(read, |set, key, _| {
            let set = table.sets.get_mut(set).ok_or(libc::ENOENT)?;
            set.elements.remove(&key).map(drop).ok_or(libc::ENOENT)
        }),
        _ => Err(libc::EOPNOTSUPP),
    }
}

/// A rule with all that it names, in whatever expression.
fn rule(read: Read<'_>) -> Rule {
    let mut rule = Rule {
        given: Given::of(read, &[]),
        ..Rule::default()
    };
    for (_, expression) in read.nested(abi::NFTA_RULE_EXPRESSIONS).each() {
        let expression = Read(expression);
        let data = expression.nested(abi::NFTA_EXPR_DATA);
        match expression.text(abi::NFTA_EXPR_NAME) {
            Some("immediate") => {
                let verdict = data
                    .nested(abi::NFTA_IMMEDIATE_DATA)
                    .nested(abi::NFTA_DATA_VERDICT);
                let chain = verdict.text(abi::NFTA_VERDICT_CHAIN);
                rule.chains.extend(chain.map(str::to_owned));
            }
            // The same number for both.
            Some("lookup" | "dynset") => {
                let set = data.text(abi::NFTA_LOOKUP_SET);
                rule.sets.extend(set.map(str::to_owned));
            }
            _ => {}
        }
    }
    rule
}

/// Each element of a list, with the name of its set.
fn elements(
    read: Read<'_>,
    mut each: impl FnMut(&str, (Vec<u8>, u32), Element) -> Result<(), i32>,
) -> Result<(), i32> {
    let set = read.text(abi::NFTA_SET_ELEM_LIST_SET).ok_or(libc::EINVAL)?;
    let list = read.get(abi::NFTA_SET_ELEM_LIST_ELEMENTS).unwrap_or(&[]);
    for one in attributes::each(list) {
        let (_, one) = one.map_err(|_| libc::EINVAL)?;
        let one = Read(one);
        let key = one.nested(abi::NFTA_SET_ELEM_KEY);
        let key = key.get(abi::NFTA_DATA_VALUE).ok_or(libc::EINVAL)?;
        let flags = one.number(abi::NFTA_SET_ELEM_FLAGS).unwrap_or(0);
        let verdict = one.nested(abi::NFTA_SET_ELEM_DATA);
        let verdict = verdict.nested(abi::NFTA_DATA_VERDICT);
        let chain = verdict.text(abi::NFTA_VERDICT_CHAIN).map(str::to_owned);
        let given = Given::of(one, &[]);
        each(set, (key.to_vec(), flags), Element { given, chain })?;
    }
    Ok(())
}
