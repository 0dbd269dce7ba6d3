//! Kernel memory that flows take.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};
use proxy_harness::bpf::Pinned;

/// What programs on devices keep of their flows.
#[derive(Debug)]
pub(super) struct Track {
    /// How many entries there are.
    pub(super) entries: usize,
    /// Bytes of memory for each that there can be: all are allocated with the map.
    pub(super) each: f64,
}

impl Track {
    /// What the agent pinned there.
    pub(super) fn of(pins: &Path) -> Result<Self> {
        let track = Pinned::open(&pins.join("connections-v1/TRACK"))?;
        let [_, key, _, most, _] = track.map_shape()?;
        Ok(Self {
            entries: track.keys(key as usize)?.len(),
            each: number(track.memory()?) / f64::from(most),
        })
    }
}

/// Flows that conntrack knows in the network namespace of whoever asks.
pub(super) fn conntrack_entries() -> Result<u32> {
    let path = "/proc/sys/net/netfilter/nf_conntrack_count";
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    text.trim()
        .parse()
        .with_context(|| format!("{path}: {text:?}"))
}

/// Bytes of an entry of conntrack, without what it allocates besides.
pub(super) fn conntrack_entry() -> Result<f64> {
    let path = "/proc/slabinfo";
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    // Name, objects in use, objects, bytes of each.
    let line = text.lines().find(|line| line.starts_with("nf_conntrack "));
    let bytes = line.and_then(|line| line.split_whitespace().nth(3));
    let bytes = bytes.with_context(|| format!("{path} has no nf_conntrack"))?;
    bytes.parse().with_context(|| format!("{path}: {bytes:?}"))
}

#[expect(clippy::cast_precision_loss, reason = "far from 2^53 bytes")]
pub(super) fn number(count: usize) -> f64 {
    count as f64
}
