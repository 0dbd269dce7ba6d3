//! The checksums of packets: RFC 1071 for IP, TCP and UDP, CRC-32C (RFC 9260, appendix A) for SCTP.

use std::net::IpAddr;

/// The complement of the ones' complement sum over all `parts`, each of even length except the
/// last.
pub(super) fn internet(parts: &[&[u8]]) -> u16 {
    let mut sum = 0_u32;
    for part in parts {
        for pair in part.chunks(2) {
            let low = pair.get(1).copied().unwrap_or_default();
            sum += u32::from(u16::from_be_bytes([pair[0], low]));
        }
    }
    // Packets are short: two foldings take in every carry.
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    !u16::try_from(sum).expect("a folded sum has 16 bits")
}

/// What TCP and UDP protect beside themselves. The same sum for both families: lengths and numbers
/// fit the low halves of IPv6's words.
pub(super) fn pseudo_header(
    source: IpAddr,
    destination: IpAddr,
    number: u8,
    length: usize,
) -> Vec<u8> {
    let mut header = Vec::new();
    for address in [source, destination] {
        match address {
            IpAddr::V4(address) => header.extend(address.octets()),
            IpAddr::V6(address) => header.extend(address.octets()),
        }
    }
    header.extend([0, number]);
    let length = u16::try_from(length).expect("a first packet is short");
    header.extend(length.to_be_bytes());
    header
}

/// CRC-32C, bit by bit: a packet has 32 bytes.
pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            let carry = crc & 1 != 0;
            crc >>= 1;
            if carry {
                crc ^= 0x82f6_3b78;
            }
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_sums() {
        // The check value of CRC-32C, and 32 bytes of zeros from RFC 3720, B.4.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        // RFC 1071, section 3.
        assert_eq!(
            internet(&[&[0x00, 0x01, 0xf2, 0x03], &[0xf4, 0xf5, 0xf6, 0xf7]]),
            !0xddf2
        );
        assert_eq!(internet(&[&[0xff]]), 0x00ff);
    }

    #[test]
    fn a_protected_packet_sums_up_to_nothing() {
        let source = "fd00::1".parse().unwrap();
        let pseudo = pseudo_header(source, source, 17, 8);
        let mut segment = [1, 2, 3, 4, 0, 8, 0, 0];
        let sum = internet(&[&pseudo, &segment]);
        segment[6..8].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(internet(&[&pseudo, &segment]), 0);
    }
}
