//! Addresses as flags and files write them. Errors complete the sentence "field: …".

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

/// Where to listen: `IP:PORT`, or an IP, to which `port` is appended. Empty for nowhere.
pub(super) fn bind(text: &str, port: u16) -> Result<Option<SocketAddr>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let address = match text.parse::<IpAddr>() {
        Ok(ip) => SocketAddr::new(ip, port),
        Err(_) => text.parse().map_err(|_| {
            format!("must be an IP address with a port, such as 0.0.0.0:{port} or [::]:{port}, but is \"{text}\"")
        })?,
    };
    if address.port() == 0 {
        return Err(format!("port must be 1 to 65535, but is 0 in \"{text}\""));
    }
    Ok(Some(address))
}

/// Addresses of pods: one CIDR, or two of different families. Empty for unknown. Blanks around them do no harm, though
/// kube-proxy refuses them: files that have them are in use.
pub(super) fn cluster_cidrs(text: &str) -> Result<Vec<IpNet>, String> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let cidrs: Vec<IpNet> = text
        .split(',')
        .map(|one| cidr(one.trim()))
        .collect::<Result<_, _>>()?;
    match cidrs[..] {
        [_] | [IpNet::V4(_), IpNet::V6(_)] | [IpNet::V6(_), IpNet::V4(_)] => Ok(cidrs),
        [_, _] => Err(format!(
            "must hold one CIDR of each family, but is \"{text}\""
        )),
        _ => Err(format!(
            "must be one CIDR, or one of each family, but \"{text}\" has {}",
            cidrs.len()
        )),
    }
}

/// One CIDR.
pub(super) fn cidr(text: &str) -> Result<IpNet, String> {
    let is_mapped =
        |cidr: &IpNet| matches!(cidr.network(), IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some());
    let cidr = text.parse().ok().filter(|cidr| !is_mapped(cidr));
    cidr.ok_or_else(|| format!("must be a CIDR such as 10.244.0.0/16, but is \"{text}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bind_address_gets_its_port_where_it_has_none() {
        let bound = |text| bind(text, 10256).map(|address| address.map(|one| one.to_string()));
        for (text, address) in [
            ("0.0.0.0:10256", "0.0.0.0:10256"),
            ("127.0.0.1:7", "127.0.0.1:7"),
            ("0.0.0.0", "0.0.0.0:10256"),
            ("::", "[::]:10256"),
            ("[::1]:80", "[::1]:80"),
        ] {
            assert_eq!(bound(text), Ok(Some(address.to_owned())), "{text}");
        }
        assert_eq!(bound(""), Ok(None));
    }

    #[test]
    fn a_bind_address_that_is_none_is_refused() {
        for text in [
            "localhost:80",
            ":10256",
            "1.2.3.4:",
            "1.2.3.4:99999",
            "1.2.3.4:0",
            "[::1]",
            "1.2.3",
            " 1.2.3.4",
        ] {
            assert!(bind(text, 1).is_err(), "{text}");
        }
    }

    #[test]
    fn cluster_cidrs_are_one_or_one_a_family() {
        for text in [
            "10.244.0.0/16",
            "fd00::/56",
            "10.244.0.0/16,fd00::/56",
            "fd00::/56, 10.0.0.0/8",
        ] {
            assert!(cluster_cidrs(text).is_ok(), "{text}");
        }
        for text in [
            "10.244.0.0",
            "10.0.0.0/8,10.1.0.0/16",
            "fd00::/56,fd01::/56",
            "10.0.0.0/8,fd00::/8,fd01::/8",
            ",",
            "10.0.0.0/33",
        ] {
            assert!(cluster_cidrs(text).is_err(), "{text}");
        }
    }
}
