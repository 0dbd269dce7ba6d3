//! Names of devices as an operator gives them: one device, or all whose names begin so.

use std::{fmt, str::FromStr};

use thiserror::Error;

/// A name, or with `*` at its end what names begin with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// The device of this name.
    pub fn exactly(name: &str) -> Self {
        Self(name.to_owned())
    }

    /// All whose names begin so.
    pub fn beginning(name: &str) -> Self {
        Self(format!("{name}*"))
    }

    /// Whether a device of this name is meant.
    pub fn matches(&self, name: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == self.0,
        }
    }
}

/// A name that no device can have: `IFNAMSIZ`, `dev_valid_name` of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "must be the name of a device (at most 15 characters, without / and spaces), with * at its end \
     for all whose names begin so"
)]
pub struct NoName;

impl FromStr for Pattern {
    type Err = NoName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let name = text.strip_suffix('*').unwrap_or(text);
        let allowed = |c: char| !c.is_whitespace() && !matches!(c, '/' | ':' | '*');
        if text.is_empty() || name.len() > 15 || !name.chars().all(allowed) {
            return Err(NoName);
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
