//! SERVICES: which Service port a number stands for. Programs never read it; a restarted agent
//! finds its numbers again by it, and people read it.

use bytemuck::{Pod, Zeroable};

/// Key of SERVICES. One number per Service port and family, given out once, not reused soon.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Pod, Zeroable)]
pub struct ServiceKey {
    /// Number of the Service port, never 0.
    pub service: u32,
}

/// Value of SERVICES.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
pub struct ServiceValue {
    /// Its own number.
    pub service: u32,
    /// IP protocol number: 6 TCP, 17 UDP.
    pub protocol: u8,
    /// 4 or 6.
    pub family: u8,
    /// Zero.
    pub padding: u16,
    /// Namespace.
    pub namespace: Text,
    /// Service name.
    pub name: Text,
    /// Port name, empty when unnamed.
    pub port_name: Text,
}

/// Text of at most 63 bytes (the length of a DNS label, which namespaces, Service names and port
/// names are), ended by a zero. `i8`, because `bpftool` prints arrays of signed characters as
/// text.
pub type Text = [i8; 64];

/// The map form of `text`; `None` when it is longer than 63 bytes or holds a zero byte.
pub fn to_text(text: &str) -> Option<Text> {
    let bytes = text.as_bytes();
    if bytes.len() >= size_of::<Text>() || bytes.contains(&0) {
        return None;
    }
    let mut out = [0; 64];
    for (to, from) in out.iter_mut().zip(bytes) {
        *to = from.cast_signed();
    }
    Some(out)
}

/// The text a map value holds; `None` when it is not UTF-8 or has no end.
pub fn from_text(text: &Text) -> Option<&str> {
    let bytes: &[u8] = bytemuck::cast_slice(text);
    let end = bytes.iter().position(|byte| *byte == 0)?;
    core::str::from_utf8(&bytes[..end]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_survives_the_round_trip() {
        for text in ["", "web", &"x".repeat(63)] {
            assert_eq!(to_text(text).as_ref().and_then(from_text), Some(text));
        }
    }

    #[test]
    fn text_that_does_not_fit_is_refused() {
        assert_eq!(to_text(&"x".repeat(64)), None);
        assert_eq!(to_text("a\0b"), None);
        assert_eq!(from_text(&[1; 64]), None);
    }
}
