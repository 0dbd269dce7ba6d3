//! Whether the kernel lets packets from loopback addresses leave this host, and answers come back to them: the sysctl
//! `route_localnet`, without which no NodePort answers on 127.0.0.1. What keeps neighbours from what listens there
//! alone is a rule (CVE-2020-8558): the sysctl is set after that, and taken back before that goes.

use std::{fs, io};

use nix::unistd::{AccessFlags, access};

use crate::{
    fixed,
    saved::{Saved, canonical},
    table::{OWNER, Table},
};

/// For all devices at once, as kube-proxy sets it.
const SYSCTL: &str = "/proc/sys/net/ipv4/conf/all/route_localnet";

/// Whether it is set, or can be.
pub fn can_be() -> bool {
    is_set().unwrap_or(false) || access(SYSCTL, AccessFlags::W_OK).is_ok()
}

fn is_set() -> io::Result<bool> {
    Ok(fs::read_to_string(SYSCTL)?.trim() != "0")
}

/// Whether it is to be set now.
pub fn is_missing() -> bool {
    !is_set().unwrap_or(true)
}

/// Whether the rules that were found say that it was set for them.
pub fn has_remark(found: &Saved) -> bool {
    let remark = canonical(fixed::remark().as_str());
    let owner = found.chain(Table::Filter, OWNER);
    owner.is_some_and(|rules| rules.contains(&remark))
}

/// Sets it.
pub fn ensure() {
    if !is_set().unwrap_or(false) {
        write("1");
    }
}

/// Sets it back, if the rules that were found say that it was set for them.
pub fn take_back(found: &Saved) {
    if has_remark(found) {
        write("0");
    }
}

fn write(value: &str) {
    if let Err(error) = fs::write(SYSCTL, value) {
        let text = "with 0, NodePorts do not answer on 127.0.0.1";
        tracing::warn!(file = SYSCTL, value, %error, text, "sysctl not set");
    }
}
