//! What rules look at: fields of a packet, the values they can have, and sets of those.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    net::{IpAddr, SocketAddr},
};

use anyhow::{Context as _, Result, bail, ensure};
use proxy_model::{IpFamily, IpNet};

use super::words::Words;

/// Something that a rule can ask about a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Field {
    Source,
    Destination,
    Protocol,
    Port,
    /// The interface on which it arrived.
    Interface,
    /// `new` or not.
    State,
    /// Whether it was given another destination.
    Status,
    /// Whether its source is an address of the host.
    SourceType,
    Mark(Arithmetic),
    /// A random number from `offset` to `offset + modulus`.
    Random {
        modulus: u64,
        offset: u64,
    },
}

/// What is done to a mark, in order.
pub type Arithmetic = Vec<(char, u64)>;

/// What a field can be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    Address(IpAddr),
    Number(u64),
    Word(String),
}

/// What an element of a set says besides its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Data {
    None,
    Verdict(Verdict),
    Endpoint(SocketAddr),
}

/// Where a rule leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Accept,
    Drop,
    Return,
    Jump(String),
    Goto(String),
}

/// The elements of a set or map.
#[derive(Debug, Clone, Default)]
pub struct Elements {
    exact: BTreeMap<Vec<Value>, Data>,
    /// First and last address of each.
    ranges: Vec<(IpAddr, IpAddr)>,
    /// What names begin with.
    beginnings: Vec<String>,
}

impl Field {
    /// The field that comes next, if one does. `family` is that of the table.
    pub fn parse(words: &mut Words<'_>, family: IpFamily) -> Result<Option<Self>> {
        let ip = match family {
            IpFamily::V4 => "ip",
            IpFamily::V6 => "ip6",
        };
        let simple = [
            (format!("{ip} saddr"), Self::Source),
            (format!("{ip} daddr"), Self::Destination),
            ("meta l4proto".to_owned(), Self::Protocol),
            ("th dport".to_owned(), Self::Port),
            ("iifname".to_owned(), Self::Interface),
            ("ct state".to_owned(), Self::State),
            ("ct status".to_owned(), Self::Status),
            ("fib saddr type".to_owned(), Self::SourceType),
        ];
        for (text, field) in simple {
            if words.take_all(&text) {
                return Ok(Some(field));
            }
        }
        if words.take_all("numgen random mod") {
            let modulus = number(words.word()?)?;
            ensure!(modulus > 0, "there is nothing to choose from");
            let offset = if words.take("offset") {
                number(words.word()?)?
            } else {
                0
            };
            return Ok(Some(Self::Random { modulus, offset }));
        }
        let is_set = words.clone().take_all("meta mark set");
        if !is_set && words.take_all("meta mark") {
            return Ok(Some(Self::Mark(arithmetic(words)?)));
        }
        Ok(None)
    }

    /// Fields that are looked up together, if one comes next.
    pub fn parse_all(words: &mut Words<'_>, family: IpFamily) -> Result<Vec<Self>> {
        let mut fields: Vec<Self> = Self::parse(words, family)?.into_iter().collect();
        while !fields.is_empty() && words.take(".") {
            let next = Self::parse(words, family)?;
            fields.push(next.with_context(|| format!("no field: {:?}", words.peek()))?);
        }
        Ok(fields)
    }
}

/// What is done to a mark that was just named.
pub fn arithmetic(words: &mut Words<'_>) -> Result<Arithmetic> {
    let mut steps = Arithmetic::new();
    for operator in ['&', '|', '^'].repeat(2) {
        if words.take(&operator.to_string()) {
            steps.push((operator, number(words.word()?)?));
        }
    }
    Ok(steps)
}

/// The result of `steps` on `mark`.
pub fn computed(mark: u64, steps: &Arithmetic) -> u64 {
    steps.iter().fold(mark, |mark, step| match step {
        ('&', operand) => mark & operand,
        ('|', operand) => mark | operand,
        (_, operand) => mark ^ operand,
    })
}

pub fn number(text: &str) -> Result<u64> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.with_context(|| format!("{text:?} is no number"))
}

impl Value {
    fn parse(text: &str) -> Self {
        if let Ok(address) = text.parse() {
            Self::Address(address)
        } else if let Ok(number) = number(text) {
            Self::Number(number)
        } else {
            Self::Word(text.trim_matches('"').to_owned())
        }
    }
}

impl Verdict {
    /// The verdict that comes next, if one does.
    pub fn parse(words: &mut Words<'_>) -> Result<Option<Self>> {
        Ok(Some(match words.peek() {
            Some("accept") => words.word().map(|_| Self::Accept)?,
            Some("drop") => words.word().map(|_| Self::Drop)?,
            Some("return") => words.word().map(|_| Self::Return)?,
            Some("jump") => {
                words.word()?;
                Self::Jump(words.word()?.to_owned())
            }
            Some("goto") => {
                words.word()?;
                Self::Goto(words.word()?.to_owned())
            }
            _ => return Ok(None),
        }))
    }

    /// The chain that it leads to.
    pub fn chain(&self) -> Option<&str> {
        match self {
            Self::Jump(chain) | Self::Goto(chain) => Some(chain),
            Self::Accept | Self::Drop | Self::Return => None,
        }
    }
}

impl Elements {
    /// One element, or several between braces.
    pub fn parse(words: &mut Words<'_>) -> Result<Self> {
        let mut elements = Self::default();
        if !words.take("{") {
            elements.add(words)?;
            return Ok(elements);
        }
        loop {
            words.skip_lines();
            elements.add(words)?;
            words.skip_lines();
            if !words.take(",") {
                words.expect("}")?;
                return Ok(elements);
            }
        }
    }

    fn add(&mut self, words: &mut Words<'_>) -> Result<()> {
        let first = words.word()?;
        if let Some(range) = range(first)? {
            self.ranges.push(range);
            return Ok(());
        }
        if let Some(beginning) = first.strip_prefix('"').and_then(|x| x.strip_suffix("*\"")) {
            self.beginnings.push(beginning.to_owned());
            return Ok(());
        }
        let mut key = vec![Value::parse(first)];
        while words.take(".") {
            key.push(Value::parse(words.word()?));
        }
        if words.take("comment") {
            words.word()?;
        }
        let data = if words.take(":") {
            match Verdict::parse(words)? {
                Some(verdict) => Data::Verdict(verdict),
                None => Data::Endpoint(endpoint(words)?),
            }
        } else {
            Data::None
        };
        self.insert(key, data)
    }

    /// Adds an element; there must be none with this key.
    pub fn insert(&mut self, key: Vec<Value>, data: Data) -> Result<()> {
        match self.exact.entry(key) {
            Entry::Vacant(place) => drop(place.insert(data)),
            Entry::Occupied(place) => bail!("two elements have the key {:?}", place.key()),
        }
        Ok(())
    }

    /// What is said of `key`.
    pub fn get(&self, key: &[Value]) -> Option<&Data> {
        if let Some(data) = self.exact.get(key) {
            return Some(data);
        }
        let within = match key {
            [Value::Address(address)] => {
                let mut ranges = self.ranges.iter();
                ranges.any(|(first, last)| first <= address && address <= last)
            }
            [Value::Word(name)] => {
                let mut beginnings = self.beginnings.iter();
                beginnings.any(|beginning| name.starts_with(beginning))
            }
            _ => false,
        };
        within.then_some(&Data::None)
    }

    /// Whether some elements are more than one value.
    pub fn has_ranges(&self) -> bool {
        !self.ranges.is_empty()
    }

    /// All keys, and what is said of them; not those of ranges.
    pub fn iter(&self) -> impl Iterator<Item = (&Vec<Value>, &Data)> {
        self.exact.iter()
    }

    /// How ranges begin and end.
    pub fn ends(&self) -> impl Iterator<Item = IpAddr> {
        self.ranges.iter().flat_map(|(first, last)| [*first, *last])
    }
}

/// `A-B`, or a CIDR.
fn range(text: &str) -> Result<Option<(IpAddr, IpAddr)>> {
    if let Ok(net) = text.parse::<IpNet>() {
        ensure!(net == net.trunc(), "{net} is no network");
        return Ok(Some((net.network(), net.broadcast())));
    }
    let Some((first, last)) = text.split_once('-') else {
        return Ok(None);
    };
    match (first.parse::<IpAddr>(), last.parse::<IpAddr>()) {
        (Ok(first), Ok(last)) => {
            ensure!(first <= last, "{text} ends before it begins");
            Ok(Some((first, last)))
        }
        _ => Ok(None),
    }
}

/// `ADDRESS . PORT`, or `ADDRESS:PORT`.
pub fn endpoint(words: &mut Words<'_>) -> Result<SocketAddr> {
    let first = words.word()?;
    if let Ok(endpoint) = first.parse() {
        return Ok(endpoint);
    }
    let address: IpAddr = first
        .parse()
        .with_context(|| format!("{first:?} is no endpoint"))?;
    words.expect(".")?;
    let port = words.word()?;
    let port = port
        .parse()
        .with_context(|| format!("{port:?} is no port"))?;
    Ok(SocketAddr::new(address, port))
}
