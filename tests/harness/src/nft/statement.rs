//! Rules as statements: the few that service proxies use.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, bail, ensure};
use proxy_model::IpFamily;

use super::{
    field::{Arithmetic, Elements, Field, Value, Verdict, arithmetic, endpoint},
    words::Words,
};

/// Elements, or a set that has them.
#[derive(Debug, Clone)]
pub enum Operand {
    Set(String),
    Elements(Elements),
}

/// One statement of a rule.
#[derive(Debug, Clone)]
pub enum Statement {
    /// The rule goes on if the fields are, or are not, among the elements.
    Match {
        fields: Vec<Field>,
        is_in: bool,
        operand: Operand,
    },
    /// The verdict that a map has for the fields.
    Dispatch(Vec<Field>, Operand),
    /// The destination that a map has for the fields.
    TranslateBy(Vec<Field>, Operand),
    /// This destination.
    TranslateTo(SocketAddr),
    /// An address of the host as the source.
    Masquerade,
    SetMark(Arithmetic),
    /// Adds the fields to a set.
    Update(String, Vec<Field>),
    Reject,
    Verdict(Verdict),
}

impl Statement {
    /// What comes next ends a rule.
    const fn is_last(&self) -> bool {
        match self {
            Self::Match { .. } | Self::SetMark(_) | Self::Update(..) => false,
            Self::Dispatch(..)
            | Self::TranslateBy(..)
            | Self::TranslateTo(_)
            | Self::Masquerade
            | Self::Reject
            | Self::Verdict(_) => true,
        }
    }

    /// What it looks up, and where.
    pub fn lookup(&self) -> Option<(&[Field], &Operand)> {
        match self {
            Self::Match {
                fields, operand, ..
            }
            | Self::Dispatch(fields, operand)
            | Self::TranslateBy(fields, operand) => Some((fields, operand)),
            _ => None,
        }
    }
}

/// Understands the rule on the line that comes next, in a table of `family`.
pub fn rule(words: &mut Words<'_>, family: IpFamily) -> Result<Vec<Statement>> {
    let mut rule: Vec<Statement> = Vec::new();
    while words.peek().is_some_and(|word| word != "\n") {
        if words.take("comment") {
            words.word()?;
            let rest = words.rest_of_line();
            ensure!(rest.is_empty(), "a comment is the last of a rule: {rest:?}");
            break;
        }
        if let Some(last) = rule.last().filter(|last| last.is_last()) {
            bail!("{:?} comes after {last:?}", words.peek());
        }
        rule.push(statement(words, family)?);
    }
    Ok(rule)
}

fn statement(words: &mut Words<'_>, family: IpFamily) -> Result<Statement> {
    if let Some(verdict) = Verdict::parse(words)? {
        return Ok(Statement::Verdict(verdict));
    }
    if words.take_all("meta mark set meta mark") {
        return Ok(Statement::SetMark(arithmetic(words)?));
    }
    let fields = Field::parse_all(words, family)?;
    if !fields.is_empty() {
        if words.take("vmap") {
            return Ok(Statement::Dispatch(fields, operand(words)?));
        }
        let is_in = !words.take("!=");
        let operand = operand(words)?;
        check_words(&fields, &operand)?;
        return Ok(Statement::Match {
            fields,
            is_in,
            operand,
        });
    }
    let found = words.word()?;
    match found {
        "reject" => Ok(Statement::Reject),
        "masquerade" => {
            words.take("fully-random");
            Ok(Statement::Masquerade)
        }
        "dnat" => translate(words, family),
        "update" => {
            let set = set(words)?;
            words.expect("{")?;
            let fields = Field::parse_all(words, family)?;
            if words.take("timeout") {
                words.word()?;
            }
            words.expect("}")?;
            Ok(Statement::Update(set, fields))
        }
        other => bail!("no statement that is known begins with {other:?}"),
    }
}

/// What a packet is compared with must be something that it may be here: otherwise nothing would
/// ever be.
fn check_words(fields: &[Field], operand: &Operand) -> Result<()> {
    let known: &[&str] = match fields {
        [Field::State] => &["new"],
        [Field::Status] => &["dnat"],
        [Field::SourceType] => &["local"],
        [Field::Protocol] => &["tcp", "udp", "sctp"],
        _ => return Ok(()),
    };
    let Operand::Elements(elements) = operand else {
        bail!("{fields:?} is compared with a set");
    };
    for (key, _) in elements.iter() {
        let is_known = matches!(&key[..], [Value::Word(word)] if known.contains(&&**word));
        ensure!(is_known, "{fields:?} is compared with {key:?}");
    }
    Ok(())
}

/// What follows `dnat`.
fn translate(words: &mut Words<'_>, family: IpFamily) -> Result<Statement> {
    if words.take("to") {
        return Ok(Statement::TranslateTo(endpoint(words)?));
    }
    words.expect(match family {
        IpFamily::V4 => "ip",
        IpFamily::V6 => "ip6",
    })?;
    words.expect("to")?;
    let fields = Field::parse_all(words, family)?;
    words.expect("map")?;
    Ok(Statement::TranslateBy(fields, operand(words)?))
}

/// `@SET`, elements between braces, or one.
fn operand(words: &mut Words<'_>) -> Result<Operand> {
    if words.peek().is_some_and(|word| word.starts_with('@')) {
        return Ok(Operand::Set(set(words)?));
    }
    Ok(Operand::Elements(Elements::parse(words)?))
}

fn set(words: &mut Words<'_>) -> Result<String> {
    let word = words.word()?;
    let name = word.strip_prefix('@');
    Ok(name
        .with_context(|| format!("{word:?} is no set"))?
        .to_owned())
}
