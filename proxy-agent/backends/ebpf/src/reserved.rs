//! The ports that the operator of a host keeps for something: what the kernel says of them, as PORTS holds
//! it. Pure.

use proxy_common::names::RESERVED_WORDS;
use thiserror::Error;

/// A bit for each port: that of port *p* is bit *p* % 32 of word *p* / 32.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ports(Box<[u32]>);

/// Something else than the kernel writes.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is neither a port nor a range of ports")]
pub struct NoPorts(String);

impl Ports {
    /// Those that `ip_local_reserved_ports` names: `8080,9148-9150`, or nothing.
    pub fn parse(text: &str) -> Result<Self, NoPorts> {
        let mut words = vec![0; RESERVED_WORDS as usize].into_boxed_slice();
        let parts = text.trim().split(',');
        for part in parts.filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (Ok(first), Ok(last)) = (first.parse::<u16>(), last.parse()) else {
                return Err(NoPorts(part.to_owned()));
            };
            for port in first..=last {
                words[usize::from(port / 32)] |= 1 << (port % 32);
            }
        }
        Ok(Self(words))
    }

    /// The words, and the index of each, that are others than in `before`; all without one.
    pub fn changed(&self, before: Option<&Self>) -> impl Iterator<Item = (u32, u32)> {
        let all = (0..).zip(&self.0);
        let changed = all.filter(move |(index, word)| {
            let index: u32 = *index;
            before.is_none_or(|before| before.0[index as usize] != **word)
        });
        changed.map(|(index, word)| (index, *word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(text: &str) -> Vec<u32> {
        let ports = Ports::parse(text).unwrap();
        let words = ports.changed(None);
        let all = words.flat_map(|(index, word)| {
            let bits = (0..32).filter(move |bit| word & 1 << bit != 0);
            bits.map(move |bit| index * 32 + bit)
        });
        all.collect()
    }

    #[test]
    fn each_port_has_a_bit() {
        assert_eq!(ports("\n"), []);
        assert_eq!(ports("8080,9148-9150\n"), [8080, 9148, 9149, 9150]);
        assert_eq!(ports("0-1,31-33,65535\n"), [0, 1, 31, 32, 33, 65535]);
        assert_eq!(ports("0-65535").len(), 65536);
        // A range without ports, which the kernel never writes.
        assert_eq!(ports("9-8"), []);
    }

    #[test]
    fn what_the_kernel_does_not_write_is_refused_as_a_whole() {
        for (text, wrong) in [
            ("80,x", "x"),
            ("65536", "65536"),
            ("1-2-3", "1-2-3"),
            ("-1", "-1"),
        ] {
            assert_eq!(Ports::parse(text), Err(NoPorts(wrong.to_owned())), "{text}");
        }
    }

    #[test]
    fn words_that_stay_are_not_written_again() {
        let [before, after] = ["8080,9148", "8080,9149"].map(|text| Ports::parse(text).unwrap());
        assert_eq!(after.changed(None).count(), 2048);
        let word = 1 << (9149 % 32);
        let changed: Vec<_> = after.changed(Some(&before)).collect();
        assert_eq!(changed, [(9149 / 32, word)]);
        assert_eq!(after.changed(Some(&after)).count(), 0);
    }
}
