//! Netlink messages, as bytes: attributes written and read. Knows the framing (netlink(7), RFC 3549),
//! no meaning.

use std::ops::ControlFlow;

use proxy_netlink::socket::HEADER;

/// Family, version, resource: what every message of netfilter begins with.
pub const NFGEN: usize = 4;

const NESTED: u16 = 0x8000;
/// The rest of a type are flags.
const TYPE: u16 = 0x3fff;

/// Messages one after the other.
#[derive(Debug, Default)]
pub struct Messages {
    bytes: Vec<u8>,
    sequence: u32,
    /// Where the last one begins.
    last: usize,
}

/// What a message is, before its attributes.
#[derive(Debug, Clone, Copy)]
pub struct Head {
    /// Type.
    pub kind: u16,
    /// Flags.
    pub flags: u16,
    /// Family.
    pub family: u8,
    /// Resource.
    pub resource: u16,
}

impl Messages {
    /// Adds a message with the attributes that `fill` writes. Returns its sequence number.
    pub fn add(&mut self, head: Head, fill: impl FnOnce(&mut Attributes<'_>)) -> u32 {
        let start = self.bytes.len();
        self.sequence += 1;
        self.last = start;
        self.bytes.extend([0; 4]);
        self.bytes.extend(head.kind.to_ne_bytes());
        self.bytes.extend(head.flags.to_ne_bytes());
        self.bytes.extend(self.sequence.to_ne_bytes());
        self.bytes.extend([0; 4]);
        self.bytes.extend([head.family, 0]);
        self.bytes.extend(head.resource.to_be_bytes());
        fill(&mut Attributes(&mut self.bytes));
        let length = u32::try_from(self.bytes.len() - start).unwrap_or(u32::MAX);
        self.bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
        self.sequence
    }

    /// All of it.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Gives the last message these flags too. Returns its number.
    pub fn flag_last(&mut self, flags: u16) -> u32 {
        if let Some([low, high]) = self.bytes.get_mut(self.last + 6..self.last + 8) {
            let flags = u16::from_ne_bytes([*low, *high]) | flags;
            [*low, *high] = flags.to_ne_bytes();
        }
        self.sequence
    }

    /// The message with this number: type and attributes.
    pub fn find(&self, sequence: u32) -> Option<(u16, &[u8])> {
        let found = each(&self.bytes, |message| {
            if message.sequence == sequence {
                ControlFlow::Break((message.kind, message.attributes))
            } else {
                ControlFlow::Continue(())
            }
        });
        found.break_value()
    }
}

/// Attributes being written.
#[derive(Debug)]
pub struct Attributes<'a>(&'a mut Vec<u8>);

impl Attributes<'_> {
    /// Bytes as they are.
    pub fn bytes(&mut self, kind: u16, value: &[u8]) {
        let length = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    /// A string with the zero that ends it.
    pub fn text(&mut self, kind: u16, value: &str) {
        let mut bytes = Vec::with_capacity(value.len() + 1);
        bytes.extend(value.as_bytes());
        bytes.push(0);
        self.bytes(kind, &bytes);
    }

    /// A number, in network byte order as all of netfilter's.
    pub fn number(&mut self, kind: u16, value: u32) {
        self.bytes(kind, &value.to_be_bytes());
    }

    /// A long number.
    pub fn long(&mut self, kind: u16, value: u64) {
        self.bytes(kind, &value.to_be_bytes());
    }

    /// Attributes within one.
    pub fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Attributes<'_>)) {
        let start = self.0.len();
        self.0.extend([0; 2]);
        self.0.extend((kind | NESTED).to_ne_bytes());
        fill(&mut Attributes(self.0));
        let length = u16::try_from(self.0.len() - start).unwrap_or(u16::MAX);
        self.0[start..start + 2].copy_from_slice(&length.to_ne_bytes());
    }

    /// Bytes written so far, of all messages.
    pub fn written(&self) -> usize {
        self.0.len()
    }
}

/// A message that was received.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    /// Type.
    pub kind: u16,
    /// Flags.
    pub flags: u16,
    /// To which request it answers.
    pub sequence: u32,
    /// Of whom.
    pub port: u32,
    /// All that comes after the header.
    pub payload: &'a [u8],
    /// The attributes of a message of netfilter.
    pub attributes: &'a [u8],
}

/// Goes through the messages of a datagram; a damaged one ends it.
pub fn each<'a, B>(
    mut bytes: &'a [u8],
    mut take: impl FnMut(Message<'a>) -> ControlFlow<B>,
) -> ControlFlow<B> {
    while let Some((header, _)) = bytes.split_first_chunk::<HEADER>() {
        let word = |at: usize| {
            let [a, b, c, d] = [header[at], header[at + 1], header[at + 2], header[at + 3]];
            u32::from_ne_bytes([a, b, c, d])
        };
        let half = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let length = word(0) as usize;
        let Some(payload) = bytes.get(HEADER..length) else {
            break;
        };
        take(Message {
            kind: half(4),
            flags: half(6),
            sequence: word(8),
            port: word(12),
            payload,
            attributes: payload.get(NFGEN..).unwrap_or(&[]),
        })?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or(&[]);
    }
    ControlFlow::Continue(())
}

/// Attributes that were received; a damaged one ends them.
#[derive(Debug, Clone)]
pub struct Read<'a>(pub &'a [u8]);

impl<'a> Iterator for Read<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (header, _) = self.0.split_first_chunk::<4>()?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let kind = u16::from_ne_bytes([header[2], header[3]]) & TYPE;
        let value = self.0.get(4..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, value))
    }
}

impl<'a> Read<'a> {
    /// The attribute of this type.
    pub fn get(&self, kind: u16) -> Option<&'a [u8]> {
        self.clone()
            .find(|(one, _)| *one == kind)
            .map(|(_, value)| value)
    }

    /// The attributes within the one of this type.
    pub fn nested(&self, kind: u16) -> Read<'a> {
        Read(self.get(kind).unwrap_or(&[]))
    }

    /// A number.
    pub fn number(&self, kind: u16) -> Option<u32> {
        Some(u32::from_be_bytes(self.get(kind)?.try_into().ok()?))
    }

    /// A long number.
    pub fn long(&self, kind: u16) -> Option<u64> {
        Some(u64::from_be_bytes(self.get(kind)?.try_into().ok()?))
    }

    /// A string.
    pub fn text(&self, kind: u16) -> Option<&'a str> {
        let bytes = self.get(kind)?;
        let end = bytes.iter().position(|byte| *byte == 0);
        std::str::from_utf8(&bytes[..end.unwrap_or(bytes.len())]).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        let mut messages = Messages::default();
        let head = Head {
            kind: 7,
            flags: 1,
            family: 2,
            resource: 10,
        };
        messages.add(head, |_| {});
        let sequence = messages.add(head, |attributes| {
            attributes.text(1, "culvert");
            attributes.nested(2, |inner| {
                inner.number(1, 80);
                inner.bytes(2, &[1, 2, 3]);
            });
        });
        let (kind, attributes) = messages.find(sequence).unwrap();
        assert_eq!(kind, 7);
        let read = Read(attributes);
        assert_eq!(read.text(1), Some("culvert"));
        assert_eq!(read.nested(2).number(1), Some(80));
        assert_eq!(read.nested(2).get(2), Some(&[1, 2, 3][..]));
        assert_eq!(read.get(3), None);
        assert!(messages.find(3).is_none());
    }

    #[test]
    fn damaged_messages_end_and_do_no_harm() {
        let mut messages = Messages::default();
        let head = Head {
            kind: 7,
            flags: 1,
            family: 2,
            resource: 10,
        };
        messages.add(head, |attributes| {
            attributes.nested(1, |inner| inner.text(1, "abc"));
        });
        let bytes = messages.as_bytes();
        for cut in 0..bytes.len() {
            let mut damaged = bytes[..cut].to_vec();
            if let Some(first) = damaged.first_mut() {
                *first = u8::try_from(cut).unwrap();
            }
            let walked = each(&damaged, |message| {
                let inner = Read(message.attributes).nested(1);
                assert!(inner.count() <= 1);
                ControlFlow::<()>::Continue(())
            });
            assert!(walked.is_continue());
        }
    }
}
