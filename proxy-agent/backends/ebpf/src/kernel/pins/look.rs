//! What making a pin directory would come to, for `check`.

use std::path::Path;

use super::{
    super::rights,
    bpffs::{BPFFS, MODE, root, would_not_stay, would_stay},
    way::{self, Way},
};

/// What [`PinDir::open`](super::PinDir::open) would come to: what is there, or why it cannot be and, after the last
/// semicolon, what to do. Changes nothing.
pub fn look(path: &Path) -> Result<String, String> {
    let shown = path.display();
    if root(path).is_some() {
        match way::find(path) {
            Ok(Way::Stranger(stranger)) => Ok(format!(
                "{shown} is on the BPF file system; {stranger}: the agent puts that aside"
            )),
            Ok(Way::Nothing | Way::Directory(_)) => {
                Ok(format!("{shown} is on the BPF file system"))
            }
            Err(error) => Err(error.to_string()),
        }
    } else if !path.starts_with(BPFFS) || (would_stay() && !rights::may_mount()) {
        Err(format!(
            "{shown} is not on a BPF file system; mount one: mount -t bpf -o {MODE} bpf {BPFFS}, or name a \
             directory of one with --pin-dir"
        ))
    } else if would_stay() {
        Ok(format!("not mounted yet: the agent mounts it at {BPFFS}"))
    } else {
        Err(would_not_stay(path))
    }
}
