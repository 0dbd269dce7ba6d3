//! Attributes of messages, written and read (netlink(7), RFC 3549). Knows no meaning.

use netlink_packet_core::{
    DecodeError, NLA_ALIGNTO, NLA_F_NESTED, NLA_HEADER_SIZE, NlaBuffer, NlasIterator,
};

/// Attributes being written.
#[derive(Debug)]
pub struct Attributes<'a>(&'a mut Vec<u8>);

impl<'a> Attributes<'a> {
    /// To be appended to `bytes`.
    pub(crate) fn new(bytes: &'a mut Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl Attributes<'_> {
    /// Bytes as they are.
    pub fn bytes(&mut self, kind: u16, value: &[u8]) {
        // The longest is a rule or a list of elements, and whoever writes those minds the length.
        let length = u16::try_from(NLA_HEADER_SIZE + value.len()).unwrap_or(u16::MAX);
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(NLA_ALIGNTO), 0);
    }

    /// A string with the zero that ends it.
    pub fn text(&mut self, kind: u16, value: &str) {
        self.bytes(kind, &[value.as_bytes(), &[0]].concat());
    }

    /// A number, in network byte order as all of netfilter's.
    pub fn number(&mut self, kind: u16, value: u32) {
        self.bytes(kind, &value.to_be_bytes());
    }

    /// A long number.
    pub fn long(&mut self, kind: u16, value: u64) {
        self.bytes(kind, &value.to_be_bytes());
    }

    /// A number as this machine writes it, as all of route netlink's.
    pub fn native(&mut self, kind: u16, value: u32) {
        self.bytes(kind, &value.to_ne_bytes());
    }

    /// Attributes within one.
    pub fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Attributes<'_>)) {
        let start = self.0.len();
        self.0.extend([0; 2]);
        self.0.extend((kind | NLA_F_NESTED).to_ne_bytes());
        fill(&mut Attributes(self.0));
        let length = u16::try_from(self.0.len() - start).unwrap_or(u16::MAX);
        self.0[start..start + 2].copy_from_slice(&length.to_ne_bytes());
    }

    /// Bytes written so far, of all messages.
    pub fn written(&self) -> usize {
        self.0.len()
    }
}

/// Kind and value of each attribute; an error where one is damaged.
pub fn each(attributes: &[u8]) -> impl Iterator<Item = Result<(u16, &[u8]), DecodeError>> {
    let mut rest = attributes;
    NlasIterator::new(attributes).map(move |attribute| {
        let attribute: NlaBuffer<&[u8]> = attribute?;
        // What the iterator gives does not live as long as what it is a part of.
        let length = usize::from(attribute.length());
        let value = &rest[NLA_HEADER_SIZE..length];
        let next = length.next_multiple_of(NLA_ALIGNTO);
        rest = rest.get(next..).unwrap_or_default();
        Ok((attribute.kind(), value))
    })
}

/// A string, without the zero byte at its end.
pub fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(until_zero(value)).into_owned()
}

/// The bytes of a number or an address, which are as many as that has.
pub fn exactly<const N: usize>(value: &[u8]) -> Result<[u8; N], DecodeError> {
    value
        .try_into()
        .map_err(|_| DecodeError::invalid_number(N, value.len()))
}

fn until_zero(value: &[u8]) -> &[u8] {
    let end = value.iter().position(|byte| *byte == 0);
    &value[..end.unwrap_or(value.len())]
}

/// Attributes by their kind; a damaged one ends them.
#[derive(Debug, Clone, Copy)]
pub struct Read<'a>(pub &'a [u8]);

impl<'a> Read<'a> {
    /// Each of them.
    pub fn each(self) -> impl Iterator<Item = (u16, &'a [u8])> {
        each(self.0).map_while(Result::ok)
    }

    /// The attribute of this kind.
    pub fn get(self, kind: u16) -> Option<&'a [u8]> {
        self.each()
            .find(|(one, _)| *one == kind)
            .map(|(_, value)| value)
    }

    /// The attributes within the one of this kind.
    pub fn nested(self, kind: u16) -> Self {
        Read(self.get(kind).unwrap_or(&[]))
    }

    /// A number.
    pub fn number(self, kind: u16) -> Option<u32> {
        Some(u32::from_be_bytes(self.get(kind)?.try_into().ok()?))
    }

    /// A long number.
    pub fn long(self, kind: u16) -> Option<u64> {
        Some(u64::from_be_bytes(self.get(kind)?.try_into().ok()?))
    }

    /// A number as this machine writes it.
    pub fn native(self, kind: u16) -> Option<u32> {
        Some(u32::from_ne_bytes(self.get(kind)?.try_into().ok()?))
    }

    /// A string.
    pub fn text(self, kind: u16) -> Option<&'a str> {
        std::str::from_utf8(until_zero(self.get(kind)?)).ok()
    }
}
