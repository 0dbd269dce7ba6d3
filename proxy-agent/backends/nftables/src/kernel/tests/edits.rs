//! What another process may do to the tables.

use proptest::{
    prelude::*,
    sample::{Index, select},
};

use super::tables::{Given, Rule, Tables};
use crate::{
    TABLE,
    kernel::{FAMILIES, expressions::nfproto},
    sets,
};

/// What another process does to one of the tables.
#[derive(Debug, Clone, Copy)]
pub enum Edit {
    DropTable,
    MakeDormant,
    FlushChain,
    AddRule,
    AddChain,
    DropSet,
    DropElement,
    SwapElements,
}

/// One of them.
pub fn edit() -> impl Strategy<Value = Edit> {
    select(vec![
        Edit::DropTable,
        Edit::MakeDormant,
        Edit::FlushChain,
        Edit::AddRule,
        Edit::AddChain,
        Edit::DropSet,
        Edit::DropElement,
        Edit::SwapElements,
    ])
}

impl Edit {
    /// Makes it, to the object that `at` chooses.
    pub fn make(self, tables: &mut Tables, at: Index) {
        let family = FAMILIES[at.index(2)];
        let place = (nfproto(family), TABLE.to_owned());
        let Some(table) = tables.get_mut(&place) else {
            return;
        };
        let chain = {
            let names: Vec<_> = table.chains.keys().cloned().collect();
            names[at.index(names.len())].clone()
        };
        let set = {
            let fixed = |name: &&String| sets::Set::ALL.iter().any(|set| set.name() == *name);
            let names: Vec<_> = table.sets.keys().filter(fixed).cloned().collect();
            names[at.index(names.len())].clone()
        };
        let elements = table.sets.get_mut(&set).map(|set| &mut set.elements);
        match (self, elements) {
            (Self::DropTable, _) => drop(tables.remove(&place)),
            (Self::MakeDormant, _) => table.flags |= 1,
            (Self::FlushChain, _) => table.chains.entry(chain).or_default().rules.clear(),
            (Self::AddRule, _) => {
                let mut rule = Rule::default();
                let name = |name: &str| [name.as_bytes(), &[0]].concat();
                rule.given = Given(vec![(1, name(TABLE)), (2, name(&chain))]);
                table.chains.entry(chain).or_default().rules.push(rule);
            }
            (Self::AddChain, _) => {
                let mut other = table.chains[&chain].clone();
                other.rules.clear();
                let name = [b"other".as_slice(), &[0]].concat();
                other.given = Given(vec![(1, [TABLE.as_bytes(), &[0]].concat()), (3, name)]);
                table.chains.insert("other".to_owned(), other);
            }
            (Self::DropSet, _) => drop(table.sets.remove(&set)),
            (Self::DropElement, Some(elements)) => drop(elements.pop_first()),
            (Self::SwapElements, Some(elements)) => {
                if elements.len() < 2 {
                    return;
                }
                let (first, last) = (elements.pop_first(), elements.pop_last());
                if let (Some((a, mut x)), Some((b, mut y))) = (first, last) {
                    std::mem::swap(&mut x.given.0[0], &mut y.given.0[0]);
                    elements.extend([(a, y), (b, x)]);
                }
            }
            (_, None) => {}
        }
    }
}
