//! The flag of this backend, and what is given by it.

use proxy_backend::{Flag, FlagMistake, Given, Takes, one_of};

const VERIFY_PARTIAL: &str = "iptables-verify-partial";
const VERIFY_WORDS: &str = "sampled|never|always";

/// All of them.
pub const ALL: &[Flag] = &[Flag {
    name: VERIFY_PARTIAL,
    takes: Takes::Choice(VERIFY_WORDS),
    help: "Whether the tables of iptables are compared, after partial restores, with what a full one would give: \
           sampled does so once there is time, and for a twentieth of it at most; always does so after each one, \
           before the change counts as in force; never does not [default: sampled]",
    check_help: None,
    field: Some("culvert.iptables.verifyPartial"),
}];

/// When a partial restore is verified: KEP-3453 declines to do so as too dear.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Verify {
    /// Never.
    Never,
    /// Once there is time for it, many together.
    #[default]
    Sampled,
    /// Each, before it counts as in force.
    Always,
}

impl Verify {
    /// What was given; the last one counts.
    pub fn given(given: &Given, mistakes: &mut Vec<FlagMistake>) -> Self {
        match given.texts(VERIFY_PARTIAL).last() {
            None | Some("sampled") => Self::Sampled,
            Some("never") => Self::Never,
            Some("always") => Self::Always,
            Some(other) => {
                mistakes.push(FlagMistake {
                    flag: VERIFY_PARTIAL,
                    value: other.to_owned(),
                    why: format!("must be {}", one_of(VERIFY_WORDS)),
                });
                Self::default()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_counts_and_others_are_mistakes() {
        let verify = |words: &[&str]| {
            let (mut given, mut mistakes) = (Given::default(), Vec::new());
            given.insert(VERIFY_PARTIAL, words.iter().map(Into::into).collect());
            let verify = Verify::given(&given, &mut mistakes);
            (verify, mistakes.into_iter().map(|one| one.why).collect())
        };
        let fine = |verify| (verify, Vec::<String>::new());
        assert_eq!(verify(&[]), fine(Verify::Sampled));
        assert_eq!(verify(&["always", "never"]), fine(Verify::Never));
        assert_eq!(verify(&["always"]), fine(Verify::Always));
        let why = "must be sampled, never or always".to_owned();
        assert_eq!(verify(&["often"]), (Verify::Sampled, vec![why]));
    }
}
