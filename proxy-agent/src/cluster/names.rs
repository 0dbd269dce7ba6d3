//! What many objects have in common: names of namespaces, nodes and ports, and topology hints.
//! Held once each.

use std::{borrow::Cow, collections::HashSet, hash::Hash, sync::Arc};

use proxy_model::Hints;

/// Before it is worth a look which values nobody has any more.
const FEW: usize = 1024;

/// A name as people can be shown it. The API server takes none with control characters; a file or
/// another server may bring some, and terminals do what they say.
pub fn plain(name: &str) -> Cow<'_, str> {
    if name.contains(char::is_control) {
        name.replace(char::is_control, "\u{fffd}").into()
    } else {
        name.into()
    }
}

/// Gives equal values the same memory. A large cluster has ten thousands of endpoints on some
/// hundred nodes in a handful of zones.
#[derive(Debug, Default)]
pub struct Names {
    names: Shared<str>,
    hints: Shared<Hints>,
}

impl Names {
    /// `name`, shared with whoever has it already; see [`plain`].
    pub fn share(&mut self, name: &str) -> Arc<str> {
        let name = &*plain(name);
        let known = self.names.known(name);
        known.unwrap_or_else(|| self.names.add(name.into()))
    }

    /// `hints`, shared with whoever has them already.
    pub fn share_hints(&mut self, hints: Hints) -> Arc<Hints> {
        let known = self.hints.known(&hints);
        known.unwrap_or_else(|| self.hints.add(Arc::new(hints)))
    }
}

#[derive(Debug)]
struct Shared<T: ?Sized> {
    values: HashSet<Arc<T>>,
    /// At this size, those that nobody else has are dropped.
    sweep_at: usize,
}

impl<T: ?Sized> Default for Shared<T> {
    fn default() -> Self {
        Self {
            values: HashSet::new(),
            sweep_at: FEW,
        }
    }
}

impl<T: Eq + Hash + ?Sized> Shared<T> {
    fn known(&self, value: &T) -> Option<Arc<T>> {
        self.values.get(value).cloned()
    }

    fn add(&mut self, value: Arc<T>) -> Arc<T> {
        if self.values.len() >= self.sweep_at {
            self.values.retain(|value| Arc::strong_count(value) > 1);
            self.sweep_at = FEW.max(2 * self.values.len());
        }
        self.values.insert(Arc::clone(&value));
        value
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
    fn what_a_terminal_would_obey_is_in_no_name() {
        let mut names = Names::default();
        assert_eq!(&*names.share("a\n\x1b[31mb"), "a\u{fffd}\u{fffd}[31mb");
        assert!(matches!(plain("web"), Cow::Borrowed("web")));
    }

    #[test]
    fn equal_hints_are_the_same() {
        let mut names = Names::default();
        let hints = |zone: &str| Hints {
            zones: vec![zone.into()],
            nodes: Vec::new(),
        };
        let (a, b) = (names.share_hints(hints("a")), names.share_hints(hints("b")));
        assert!(Arc::ptr_eq(&a, &names.share_hints(hints("a"))));
        assert_ne!(a, b);
    }

    #[test]
    fn names_that_nobody_has_any_more_are_dropped() {
        let mut names = Names::default();
        let kept: Vec<_> = (0..10)
            .map(|number| names.share(&format!("kept-{number}")))
            .collect();
        for number in 0..100_000 {
            names.share(&format!("gone-{number}"));
            assert!(names.names.values.len() <= FEW);
        }
        for name in kept {
            assert!(Arc::ptr_eq(&name, &names.share(&name)));
        }
    }
}
