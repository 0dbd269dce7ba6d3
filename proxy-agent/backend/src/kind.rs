//! A backend of this program, as a value that is compared by its unique name.

use std::{fmt, ops::Deref};

use crate::{Descriptor, FlagMistake, Given};

/// A backend of this program.
#[derive(Clone, Copy)]
pub struct BackendKind(&'static dyn Descriptor);

impl BackendKind {
    /// The backend with this description.
    pub const fn of(descriptor: &'static dyn Descriptor) -> Self {
        Self(descriptor)
    }

    /// The one of `all` with this name.
    pub fn named(name: &str, all: &[Self]) -> Option<Self> {
        all.iter().copied().find(|kind| kind.name() == name)
    }

    /// What those of `all` find wrong with values of their flags.
    pub fn mistakes(all: &[Self], given: &Given) -> Vec<FlagMistake> {
        let mut mistakes = Vec::new();
        for kind in all {
            kind.check(given, &mut mistakes);
        }
        mistakes
    }
}

impl Deref for BackendKind {
    type Target = dyn Descriptor;

    fn deref(&self) -> &Self::Target {
        self.0
    }
}

impl fmt::Debug for BackendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl PartialEq for BackendKind {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for BackendKind {}
