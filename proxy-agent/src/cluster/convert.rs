//! Kubernetes API objects to model values. Pure: no I/O, no memory of earlier objects.
//!
//! An object is converted as far as it makes sense. What does not, and what is valid but not
//! served, becomes a diagnostic with the field's path; the rest of the object proceeds. Fields
//! that the API server would fill in are taken as it fills them in, so that a manifest written by
//! hand means the same here as in a cluster.

use std::{fmt, net::IpAddr, sync::Arc};

use proxy_model::{Diagnostic, ObjectName, Protocol};

use super::{
    brief::brief,
    names::{Names, plain},
    object::Metadata,
};

mod node;
mod service;
mod slice;

pub use node::{node, service_cidr};
pub use service::service;
pub use slice::slice;

/// What an API object means to the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Converted<V> {
    /// The value; `None` for an object that this proxy does not serve.
    pub value: Option<V>,
    /// What is wrong with the object, or not served of it, ordered by field as written.
    pub diagnostics: Vec<Diagnostic>,
}

impl<V> Converted<V> {
    /// An object that is no business of this proxy, which is nothing to report.
    fn ignored() -> Self {
        Self {
            value: None,
            diagnostics: Vec::new(),
        }
    }

    /// An object that is not served because of a mistake.
    fn refused(report: Report) -> Self {
        Self {
            value: None,
            diagnostics: report.diagnostics,
        }
    }
}

/// The name of a namespaced object; `None` if the object has none. Without a namespace an object
/// is in `default`, as for `kubectl`.
pub fn object_name(metadata: &Metadata, names: &mut Names) -> Option<ObjectName> {
    let name = non_empty(metadata.name.as_deref())?;
    let namespace = non_empty(metadata.namespace.as_deref()).unwrap_or("default");
    Some(ObjectName::new(names.share(namespace), &*plain(name)))
}

/// Mistakes of one object that are told: somebody makes one of them at a time, or a program all.
const MOST_DIAGNOSTICS: usize = 100;

/// Collects what is wrong with one object.
struct Report {
    object: Arc<str>,
    diagnostics: Vec<Diagnostic>,
}

impl Report {
    fn about(kind: &str, name: &impl fmt::Display) -> Self {
        Self {
            object: format!("{kind} {name}").into(),
            diagnostics: Vec::new(),
        }
    }

    fn add(&mut self, field: impl AsRef<str>, message: impl AsRef<str>) {
        if self.diagnostics.len() >= MOST_DIAGNOSTICS {
            return;
        }
        let (field, message) = if self.diagnostics.len() == MOST_DIAGNOSTICS - 1 {
            ("", "this object has more mistakes than are reported")
        } else {
            (field.as_ref(), message.as_ref())
        };
        self.diagnostics.push(Diagnostic {
            object: Arc::clone(&self.object),
            field: brief(field),
            message: brief(message),
        });
    }
}

/// Whether another proxy serves the object, or none does.
fn is_not_ours(metadata: &Metadata) -> bool {
    metadata.labels.proxy_name.is_some() || metadata.labels.headless.is_some()
}

fn non_empty(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

/// The error completes the sentence "field: …".
fn parse_address(text: &str) -> Result<IpAddr, String> {
    let address: IpAddr = text
        .parse()
        .map_err(|_| format!("{text:?} is not an IP address: it is left out"))?;
    if address.is_unspecified() {
        return Err(format!(
            "{text:?} is not an address that can be reached: it is left out"
        ));
    }
    if matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some()) {
        return Err(format!(
            "{text:?} is an IPv4-mapped IPv6 address: it is left out"
        ));
    }
    Ok(address)
}

/// An address that a Service or an endpoint may have: whoever may write Services must not be able to
/// take an address over that every node uses itself, or to lead others there. The error completes the sentence "field: …".
fn parse_ordinary_address(text: &str) -> Result<IpAddr, String> {
    let address = parse_address(text)?;
    let special = match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    if special || address.is_loopback() || address.is_multicast() {
        return Err(format!(
            "{address} is an address that no Service and no endpoint may have (loopback, link-local, \
             multicast or broadcast): it is left out"
        ));
    }
    Ok(address)
}

/// The error completes the sentence "field: …".
fn parse_port(number: i32) -> Result<u16, String> {
    match u16::try_from(number) {
        Ok(0) | Err(_) => Err(format!(
            "{number} is not a port number from 1 to 65535: this port is left out"
        )),
        Ok(port) => Ok(port),
    }
}

/// The error completes the sentence "field: …".
fn parse_protocol(protocol: Option<&str>) -> Result<Protocol, String> {
    match non_empty(protocol) {
        None | Some("TCP") => Ok(Protocol::Tcp),
        Some("UDP") => Ok(Protocol::Udp),
        Some("SCTP") => Ok(Protocol::Sctp),
        Some(other) => Err(format!(
            "{other:?} is none of TCP, UDP and SCTP: this port is left out"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_cannot_be_endpoints_or_cluster_ips_are_refused() {
        for (text, accepted) in [
            ("10.96.0.1", true),
            ("fd00::1", true),
            ("127.0.0.1", true),
            ("", false),
            ("10.96.0.256", false),
            ("10.96.0.01", false),
            ("10.96.0.1/32", false),
            ("fe80::1%eth0", false),
            ("example.org", false),
            ("0.0.0.0", false),
            ("::", false),
            ("::ffff:10.96.0.1", false),
        ] {
            assert_eq!(parse_address(text).is_ok(), accepted, "{text:?}");
        }
    }

    #[test]
    fn an_object_has_as_many_diagnostics_as_somebody_reads() {
        let mut report = Report::about("Service", &"shop/web");
        for index in 0..10_000 {
            let value = "x".repeat(10_000);
            report.add(format!("spec.ports[{index}]"), format!("{value:?} is none"));
        }
        assert_eq!(report.diagnostics.len(), MOST_DIAGNOSTICS);
        let last = report.diagnostics.last().unwrap();
        assert!(last.message.contains("more mistakes"), "{last}");
        assert!(report.diagnostics.iter().all(|one| one.message.len() < 500));
    }

    #[test]
    fn port_numbers_are_1_to_65535() {
        for (number, accepted) in [
            (i32::MIN, false),
            (-1, false),
            (0, false),
            (1, true),
            (65535, true),
            (65536, false),
        ] {
            assert_eq!(parse_port(number).is_ok(), accepted, "{number}");
        }
    }

    #[test]
    fn an_object_without_namespace_is_in_default_and_one_without_name_is_none() {
        let name = |metadata: &Metadata| object_name(metadata, &mut Names::default());
        let metadata = |namespace: &str, name: &str| Metadata {
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
            ..Metadata::default()
        };
        assert_eq!(
            name(&metadata("", "web")),
            Some(ObjectName::new("default", "web"))
        );
        assert_eq!(
            name(&metadata("shop", "web")),
            Some(ObjectName::new("shop", "web"))
        );
        assert_eq!(name(&metadata("shop", "")), None);
        assert_eq!(name(&Metadata::default()), None);
    }
}
