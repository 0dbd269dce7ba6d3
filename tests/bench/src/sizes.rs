//! How large the clusters are that are measured.

use std::fmt;

/// So many Services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_as_people_read_them() {
        let shown = [10, 999, 1_000, 10_050].map(|size| Size(size).to_string());
        assert_eq!(shown, ["10", "999", "1,000", "10,050"]);
    }
}
