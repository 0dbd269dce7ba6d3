//! One rule: whom it is for, and what it does with them.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, bail, ensure};
use proxy_model::IpFamily;

use super::matches::{self, Match, Words, masked, next};

/// A rule.
#[derive(Debug)]
pub struct Rule {
    /// All of them must be true, in order.
    pub matches: Vec<Match>,
    pub target: Target,
}

/// What a rule does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Nothing,
    Accept,
    Drop,
    Reject,
    Return,
    /// What of the mark is in `mask` is cleared, and then it is inverted where `value` is set.
    Mark {
        value: u64,
        mask: u64,
    },
    Dnat(SocketAddr),
    Masquerade,
    Jump(String),
}

impl Rule {
    /// Understands a rule of this family, without its chain.
    pub fn parse(text: &str, family: IpFamily) -> Result<Self> {
        let mut words = words(text)?;
        let matches = matches::parse(&mut words, family)?;
        let target = if words.next().is_some() {
            let name = next(&mut words)?;
            let target = target(&name, &mut words, family);
            target.with_context(|| format!("-j {name}"))?
        } else {
            Target::Nothing
        };
        if let Some(more) = words.next() {
            bail!("{more:?} comes after all that is known");
        }
        Ok(Self { matches, target })
    }
}

fn target(name: &str, words: &mut Words, family: IpFamily) -> Result<Target> {
    Ok(match name {
        "ACCEPT" => Target::Accept,
        "DROP" => Target::Drop,
        "REJECT" => {
            // As it is anyway, and as it is shown.
            if words.next_if(|word| word == "--reject-with").is_some() {
                let with = next(words)?;
                let all = ["icmp-port-unreachable", "icmp6-port-unreachable"];
                ensure!(all.contains(&&*with), "{with} tells something else");
            }
            Target::Reject
        }
        "RETURN" => Target::Return,
        "MARK" => {
            ensure!(next(words)? == "--set-xmark", "only --set-xmark is known");
            let (value, mask) = masked(&next(words)?)?;
            Target::Mark { value, mask }
        }
        "DNAT" => {
            let option = next(words)?;
            ensure!(option == "--to-destination", "{option:?} is not known");
            let to: SocketAddr = next(words)?.parse().context("no endpoint")?;
            ensure!(IpFamily::of(to.ip()) == family, "{to} is of another family");
            Target::Dnat(to)
        }
        "MASQUERADE" => {
            words.next_if(|word| word == "--random-fully");
            Target::Masquerade
        }
        chain => Target::Jump(chain.to_owned()),
    })
}

/// What is between quotes is one word, without its quotes.
fn words(text: &str) -> Result<Words> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let end = if let Some(quoted) = rest.strip_prefix('"') {
            let end = quoted.find('"').context("a quote does not end")?;
            ensure!(!quoted[..end].contains('\\'), "nothing is known of escapes");
            words.push(quoted[..end].to_owned());
            end + 2
        } else {
            let end = rest.find(' ').unwrap_or(rest.len());
            ensure!(!rest[..end].contains('"'), "a quote begins in a word");
            words.push(rest[..end].to_owned());
            end
        };
        rest = &rest[end..];
        ensure!(
            rest.is_empty() || rest.starts_with(' '),
            "a word goes on behind its quotes"
        );
        rest = rest.trim_start();
    }
    Ok(words.into_iter().peekable())
}
