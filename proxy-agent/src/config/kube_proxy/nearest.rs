//! What was probably meant.

/// How different a name may be from what was meant: letters that must change.
const MOST_LETTERS: usize = 3;

/// Bytes of a name that may be meant for another one.
const LONGEST: usize = 100;

/// The known path that is nearest to `path`: one that differs in a few letters, or in nothing but the section that it
/// is in.
pub(super) fn nearest(
    path: &str,
    known: impl Iterator<Item = &'static str>,
) -> Option<&'static str> {
    // Nobody means by it what is much shorter, and to compare it takes long.
    if path.len() > LONGEST {
        return None;
    }
    let letters = |text: &str| text.to_lowercase();
    let name = |path: &str| letters(path.rsplit('.').next().unwrap_or_default());
    let mut all: Vec<_> = known
        .map(|one| {
            let distance = strsim::damerau_levenshtein(&letters(path), &letters(one));
            let is_elsewhere = name(path) == name(one);
            // As good as one letter: whoever knows the name seldom means another one.
            (
                if is_elsewhere {
                    distance.min(1)
                } else {
                    distance
                },
                one,
            )
        })
        .collect();
    all.sort_unstable();
    let (distance, one) = *all.first()?;
    (distance <= MOST_LETTERS.min(path.len() / 3)).then_some(one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_letters_may_differ_or_the_section() {
        let known = ["mode", "clusterCIDR", "iptables.syncPeriod", "oomScoreAdj"];
        for (path, meant) in [
            ("Mode", Some("mode")),
            ("mdoe", Some("mode")),
            ("clustercidr", Some("clusterCIDR")),
            ("clusterCIDRs", Some("clusterCIDR")),
            ("syncPeriod", Some("iptables.syncPeriod")),
            ("linux.oomScoreAdj", Some("oomScoreAdj")),
            ("iptables.syncperiods", Some("iptables.syncPeriod")),
            ("portRange", None),
            ("a", None),
        ] {
            assert_eq!(nearest(path, known.into_iter()), meant, "{path}");
        }
    }
}
