//! Whether there is room for more flows: closed ones give way sooner while it is scarce, and that there is none is
//! told once.

/// Whether room is scarce: more than half is taken; and after that, until it is less than a quarter.
pub const fn is_crowded(before: bool, flows: u64, most: u64) -> bool {
    let enough = if before { most / 4 } else { most / 2 };
    flows > enough
}

/// What was told.
#[derive(Debug, Default)]
pub struct Room {
    is_full: bool,
}

impl Room {
    /// Tells if no flow may begin any more, once until there is room again.
    pub fn tell(&mut self, flows: u64, most: u64) {
        let is_full = flows >= most;
        if is_full && !self.is_full {
            tracing::warn!(
                flows,
                text = "no further connection from outside is translated by programs on devices until some end; \
                        --map-size TRACK=FLOWS makes room for more",
                "map TRACK is full"
            );
        }
        self.is_full = is_full;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_scarce_from_a_half_on_until_it_is_a_quarter() {
        for (before, flows, expected) in [
            (false, 50, false),
            (false, 51, true),
            (true, 26, true),
            (true, 25, false),
        ] {
            assert_eq!(is_crowded(before, flows, 100), expected, "{before} {flows}");
        }
    }
}
