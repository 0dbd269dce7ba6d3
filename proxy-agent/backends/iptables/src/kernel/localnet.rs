//! Whether the kernel lets packets from loopback addresses leave this host, and answers come back to them: the sysctl
//! `route_localnet`, without which no NodePort answers on 127.0.0.1. What keeps neighbours from what listens there
//! alone is rules (CVE-2020-8558): the sysctl is set after those, and set back before they go.
//!
//! Whoever sets it by hand, or kube-proxy, writes 1. Any value but 0 means the same to the kernel, so that ours says
//! whose it is: rules, or a file, that said so could be lost while it stays.

use std::{fs, io};

use nix::unistd::{AccessFlags, access};

/// For all devices at once, as kube-proxy sets it.
pub const SYSCTL: &str = "/proc/sys/net/ipv4/conf/all/route_localnet";
const SHUT: &str = "0";
/// Set by one of ours.
pub const OURS: &str = "2";

fn value() -> Option<String> {
    let text = fs::read_to_string(SYSCTL).ok()?;
    Some(text.trim().to_owned())
}

/// Whether it is set, or can be.
pub fn can_be() -> bool {
    value().is_some_and(|value| value != SHUT) || access(SYSCTL, AccessFlags::W_OK).is_ok()
}

/// Whether it is to be set now.
pub fn is_missing() -> bool {
    value().is_some_and(|value| value == SHUT)
}

/// Whether one of ours has set it.
pub fn is_ours() -> bool {
    value().is_some_and(|value| value == OURS)
}

/// Sets it, unless somebody has. Returns whether it is set.
pub fn ensure() -> bool {
    if !is_missing() {
        return true;
    }
    let set = fs::write(SYSCTL, OURS);
    if let Err(error) = &set {
        let text = "NodePorts do not answer on 127.0.0.1";
        tracing::warn!(file = SYSCTL, value = OURS, %error, text, "sysctl not set");
    }
    set.is_ok()
}

/// Sets it back because rules that keep neighbours out are not there, or nobody can tell.
pub fn close() {
    let text = "NodePorts do not answer on 127.0.0.1 until rules that keep neighbours from there are in force";
    tracing::warn!(file = SYSCTL, text, "sysctl set back");
    try_to_take_back();
}

/// Sets it back, if one of ours has set it.
pub fn take_back() -> io::Result<()> {
    if is_ours() {
        fs::write(SYSCTL, SHUT)?;
    }
    Ok(())
}

/// The same; that it cannot be is told.
pub fn try_to_take_back() {
    if let Err(error) = take_back() {
        let text = "rules go on keeping neighbours from what listens on 127.0.0.1 alone";
        tracing::warn!(file = SYSCTL, value = SHUT, %error, text, "sysctl not set");
    }
}
