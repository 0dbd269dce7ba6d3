//! Names that many objects have in common: of namespaces, nodes and ports. Held once each.

use std::{collections::HashSet, sync::Arc};

/// Before it is worth a look which names nobody has any more.
const FEW: usize = 1024;

/// Gives equal names the same memory. A large cluster has ten thousands of endpoints on some
/// hundred nodes.
#[derive(Debug)]
pub struct Names {
    names: HashSet<Arc<str>>,
    /// At this size, those that nobody else has are dropped.
    sweep_at: usize,
}

impl Default for Names {
    fn default() -> Self {
        Self {
            names: HashSet::new(),
            sweep_at: FEW,
        }
    }
}

impl Names {
    /// `name`, shared with whoever has it already.
    pub fn share(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.names.get(name) {
            return Arc::clone(known);
        }
        if self.names.len() >= self.sweep_at {
            self.names.retain(|name| Arc::strong_count(name) > 1);
            self.sweep_at = FEW.max(2 * self.names.len());
        }
        let name: Arc<str> = name.into();
        self.names.insert(Arc::clone(&name));
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_are_the_same() {
        let mut names = Names::default();
        let (a, b) = (names.share("a"), names.share("b"));
        assert!(Arc::ptr_eq(&a, &names.share("a")));
        assert!(!Arc::ptr_eq(&a, &b));
    }

    #[test]
    fn names_that_nobody_has_any_more_are_dropped() {
        let mut names = Names::default();
        let kept: Vec<_> = (0..10)
            .map(|number| names.share(&format!("kept-{number}")))
            .collect();
        for number in 0..100_000 {
            names.share(&format!("gone-{number}"));
            assert!(names.names.len() <= FEW);
        }
        for name in kept {
            assert!(Arc::ptr_eq(&name, &names.share(&name)));
        }
    }
}
