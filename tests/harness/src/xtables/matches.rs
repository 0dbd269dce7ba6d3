//! Matches: what a rule asks about a packet.

use std::{iter::Peekable, net::IpAddr, vec::IntoIter};

use anyhow::{Context as _, Result, bail, ensure};
use proxy_model::{IpFamily, IpNet, Protocol};

/// Something that a rule asks.
#[derive(Debug, Clone, PartialEq)]
pub struct Match {
    /// The answer that it wants is no.
    pub is_not: bool,
    pub what: What,
}

/// What can be asked.
#[derive(Debug, Clone, PartialEq)]
pub enum What {
    Source(IpNet),
    Destination(IpNet),
    /// It arrived on the interface of this name, or on one whose name begins so.
    Interface {
        name: String,
        begins: bool,
    },
    Protocol(Protocol),
    Port(u16),
    /// It was dialled, before it was translated.
    Dialled(IpNet),
    /// One of these is what conntrack says of it.
    States(Vec<State>),
    SourceIsLocal,
    DestinationIsLocal,
    Mark {
        value: u64,
        mask: u64,
    },
    /// It happens so often, from 0 to 1.
    Chance(f64),
    /// Its source is in a list.
    IsIn(String),
    /// Always true, and puts the source into a list.
    PutInto(String),
}

/// What conntrack may say of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    New,
    /// It was given another destination.
    Dnat,
    /// Nothing of a packet that opens a connection: invalid, related, established.
    Other,
}

/// Words of a rule that are still to be read.
pub type Words = Peekable<IntoIter<String>>;

/// Reads the matches of a rule, up to its target or its end.
pub fn parse(words: &mut Words, family: IpFamily) -> Result<Vec<Match>> {
    let mut matches = Vec::new();
    let mut protocol = None;
    while words.peek().is_some_and(|word| word != "-j") {
        let (is_not, word) = option(words)?;
        let mut add = |what| matches.push(Match { is_not, what });
        match &*word {
            "-s" => add(What::Source(net(&next(words)?, family)?)),
            "-d" => add(What::Destination(net(&next(words)?, family)?)),
            "-i" => add(interface(&next(words)?)),
            "-p" => {
                let named = known_protocol(&next(words)?)?;
                ensure!(!is_not, "of no protocol nothing more can be asked");
                protocol = Some(named);
                add(What::Protocol(named));
            }
            "-m" => {
                ensure!(!is_not, "an extension cannot be negated");
                let name = next(words)?;
                let more = extension(&name, words, family, protocol);
                matches.extend(more.with_context(|| format!("-m {name}"))?);
            }
            other => bail!("{other:?} is not known"),
        }
    }
    Ok(matches)
}

/// What an extension asks, whose name has been read.
fn extension(
    name: &str,
    words: &mut Words,
    family: IpFamily,
    protocol: Option<Protocol>,
) -> Result<Vec<Match>> {
    let mut matches = Vec::new();
    let mut recent = Recent::default();
    while words
        .peek()
        .is_some_and(|word| word == "!" || word.starts_with("--"))
    {
        let (is_not, word) = option(words)?;
        let mut add = |what| matches.push(Match { is_not, what });
        match (name, &*word) {
            // Say something, or count, and ask nothing.
            ("comment", "--comment") | ("nfacct", "--nfacct-name") if !is_not => drop(next(words)?),
            ("tcp" | "udp" | "sctp", "--dport") => {
                add(What::Port(next(words)?.parse().context("no port")?));
            }
            ("conntrack", "--ctstate") => {
                let list = next(words)?;
                let states: Result<_> = list.split(',').map(state).collect();
                add(What::States(states?));
            }
            ("conntrack", "--ctorigdst") => add(What::Dialled(net(&next(words)?, family)?)),
            ("addrtype", "--src-type") => {
                ensure!(next(words)? == "LOCAL", "only LOCAL is known");
                add(What::SourceIsLocal);
            }
            ("addrtype", "--dst-type") => {
                ensure!(next(words)? == "LOCAL", "only LOCAL is known");
                add(What::DestinationIsLocal);
            }
            ("mark", "--mark") => {
                let (value, mask) = masked(&next(words)?)?;
                add(What::Mark { value, mask });
            }
            ("statistic", "--mode") if !is_not => {
                ensure!(next(words)? == "random", "only the mode random is known");
            }
            ("statistic", "--probability") if !is_not => {
                let chance: f64 = next(words)?.parse().context("no chance")?;
                ensure!(chance > 0.0 && chance < 1.0, "{chance} decides nothing");
                add(What::Chance(chance));
            }
            ("recent", word) if !is_not => recent.read(word, words)?,
            (_, other) => bail!("{other:?} is not known"),
        }
    }
    match name {
        "tcp" | "udp" | "sctp" => {
            ensure!(
                protocol == Some(known_protocol(name)?),
                "it takes packets of that protocol"
            );
        }
        "recent" => matches.push(recent.asked()?),
        "comment" | "nfacct" => {}
        "conntrack" | "addrtype" | "mark" | "statistic" => {
            ensure!(!matches.is_empty(), "it asks nothing");
        }
        _ => bail!("it is not known"),
    }
    Ok(matches)
}

/// The options of `recent`, which belong together.
#[derive(Default)]
struct Recent {
    name: Option<String>,
    sets: bool,
    checks: bool,
    seconds: Option<u64>,
}

impl Recent {
    fn read(&mut self, word: &str, words: &mut Words) -> Result<()> {
        match word {
            "--name" => self.name = Some(next(words)?),
            "--set" => self.sets = true,
            "--rcheck" => self.checks = true,
            "--seconds" => self.seconds = Some(next(words)?.parse().context("no number")?),
            // One forgets who is too old, which nobody is here; the other is as it is anyway.
            "--reap" | "--rsource" => {}
            "--mask" => {
                let mask = next(words)?;
                let all = ["255.255.255.255", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"];
                ensure!(all.contains(&&*mask), "{mask} has several clients in one");
            }
            other => bail!("{other:?} is not known"),
        }
        Ok(())
    }

    fn asked(self) -> Result<Match> {
        let name = self.name.context("it has no name")?;
        let what = match (self.sets, self.checks, self.seconds) {
            (true, false, None) => What::PutInto(name),
            (false, true, Some(1..)) => What::IsIn(name),
            _ => bail!("it either sets or checks, and checks for some time"),
        };
        Ok(Match {
            is_not: false,
            what,
        })
    }
}

/// The next word, which is an option, and whether it is negated.
fn option(words: &mut Words) -> Result<(bool, String)> {
    let is_not = words.next_if(|word| word == "!").is_some();
    Ok((is_not, next(words)?))
}

/// The next word.
pub fn next(words: &mut Words) -> Result<String> {
    words.next().context("the rule ends too early")
}

/// `VALUE/MASK`, in hexadecimal.
pub fn masked(text: &str) -> Result<(u64, u64)> {
    let number = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    let read = |(value, mask)| Some((number(value)?, number(mask)?));
    let mark = text.split_once('/').and_then(read);
    mark.with_context(|| format!("{text:?} is no mark and mask"))
}

fn net(text: &str, family: IpFamily) -> Result<IpNet> {
    let address = || text.parse::<IpAddr>().map(IpNet::from);
    let net = text.parse().or_else(|_| address());
    let net = net.with_context(|| format!("{text:?} is no address"))?;
    ensure!(net == net.trunc(), "{net} is no network");
    ensure!(
        IpFamily::of(net.addr()) == family,
        "{net} is of another family"
    );
    Ok(net)
}

fn interface(text: &str) -> What {
    let beginning = text.strip_suffix('+');
    What::Interface {
        name: beginning.unwrap_or(text).to_owned(),
        begins: beginning.is_some(),
    }
}

fn known_protocol(text: &str) -> Result<Protocol> {
    Ok(match text {
        "tcp" => Protocol::Tcp,
        "udp" => Protocol::Udp,
        "sctp" => Protocol::Sctp,
        other => bail!("no protocol {other} is known"),
    })
}

fn state(text: &str) -> Result<State> {
    Ok(match text {
        "NEW" => State::New,
        "DNAT" => State::Dnat,
        "INVALID" | "RELATED" | "ESTABLISHED" => State::Other,
        other => bail!("no state {other} is known"),
    })
}
