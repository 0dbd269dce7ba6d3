//! How large the clusters are that are measured.

use std::fmt;

/// So many Services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Size(pub(super) u32);

/// What others are compared with.
pub(super) const SMALL: Size = Size(10);

/// A small, a medium and a large cluster.
pub(super) const SIZES: [Size; 3] = [SMALL, Size(1_000), Size(10_000)];

/// With `--quick`: filling clusters is what takes long, above all without optimisation.
pub(super) const QUICK: [Size; 3] = [SMALL, Size(100), Size(1_000)];

/// As in a sentence: `10,000`.
impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0 / 1000, self.0 % 1000) {
            (0, rest) => write!(f, "{rest}"),
            (thousands, rest) => write!(f, "{thousands},{rest:03}"),
        }
    }
}

impl Size {
    /// What `text` says, if it is a size as it is shown.
    pub(super) fn read(text: &str) -> Option<Self> {
        let size = Self(text.replace(',', "").parse().ok()?);
        (size.to_string() == text).then_some(size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_as_people_read_them() {
        let shown = [10, 999, 1_000, 10_050].map(|size| Size(size).to_string());
        assert_eq!(shown, ["10", "999", "1,000", "10,050"]);
    }

    #[test]
    fn what_is_shown_is_read() {
        for size in [1, 10, 999, 1_000, 10_050].map(Size) {
            assert_eq!(Size::read(&size.to_string()), Some(size));
        }
        for text in ["", "ten", "1000", "-1", " 10", "10,00", "99,999,999,999"] {
            assert_eq!(Size::read(text), None, "{text:?}");
        }
    }
}
