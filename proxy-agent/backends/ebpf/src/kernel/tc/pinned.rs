//! What is among the pins about devices, by name: links, and notes that a qdisc is Culvert's own. Names
//! hold the number of the device, for a file system that allows no dots in them.

use super::Direction;
use crate::kernel::pins::{PinError, PinPath, entries_in, remove_tree};

/// What is pinned about a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A link to it.
    Link(Direction),
    /// That its qdisc goes with the last filter.
    OwnQdisc,
    /// That its programs are those for pods.
    OfPods,
}

/// What is noted about a device, by a directory that nothing is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Note {
    /// [`Kind::OwnQdisc`].
    OwnQdisc,
    /// [`Kind::OfPods`].
    OfPods,
}

impl Note {
    fn at<'d>(self, directory: &PinPath<'d>, device: u32) -> PinPath<'d> {
        let what = match self {
            Self::OwnQdisc => "clsact",
            Self::OfPods => "pods",
        };
        directory.join(format!("{device}-{what}"))
    }

    /// Notes it.
    pub fn make(self, directory: &PinPath<'_>, device: u32) -> Result<(), PinError> {
        let note = self.at(directory, device);
        directory
            .make_directory()
            .and_then(|()| note.make_directory())
            .map_err(|error| PinError::Refused {
                what: "making",
                path: note.shown().to_owned(),
                error,
            })
    }

    /// Whether it is noted.
    pub fn is_there(self, directory: &PinPath<'_>, device: u32) -> bool {
        self.at(directory, device).exists()
    }

    /// It is so no more.
    pub fn forget(self, directory: &PinPath<'_>, device: u32) -> Result<(), PinError> {
        remove_tree(&self.at(directory, device))
    }
}

/// Where the link to a device is pinned.
pub fn link<'d>(directory: &PinPath<'d>, device: u32, direction: Direction) -> PinPath<'d> {
    directory.join(format!("{device}-{direction}"))
}

/// What a name stands for; `None` for what no agent called so.
pub fn meaning(name: &str) -> Option<(u32, Kind)> {
    let name = name.strip_suffix("-next").unwrap_or(name);
    let (device, what) = name.split_once('-')?;
    let kind = match what {
        "ingress" => Kind::Link(Direction::Ingress),
        "egress" => Kind::Link(Direction::Egress),
        "clsact" => Kind::OwnQdisc,
        "pods" => Kind::OfPods,
        _ => return None,
    };
    Some((device.parse().ok()?, kind))
}

/// All that is pinned here, sorted.
pub fn all<'d>(directory: &PinPath<'d>) -> Result<Vec<(u32, Kind, PinPath<'d>)>, PinError> {
    let entries = entries_in(directory)?;
    let meant = entries.iter().filter_map(|entry| {
        let name = entry.file_name();
        let (device, kind) = meaning(name.to_str()?)?;
        Some((device, kind, directory.join(name)))
    });
    Ok(meant.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_an_agent_gives_mean_something() {
        for (name, expected) in [
            ("7-ingress", Some((7, Kind::Link(Direction::Ingress)))),
            ("7-egress", Some((7, Kind::Link(Direction::Egress)))),
            ("7-egress-next", Some((7, Kind::Link(Direction::Egress)))),
            ("12-clsact", Some((12, Kind::OwnQdisc))),
            ("12-pods", Some((12, Kind::OfPods))),
            ("culvert_conn4", None),
            ("-ingress", None),
            ("x-ingress", None),
            ("7-other", None),
            ("7", None),
        ] {
            assert_eq!(meaning(name), expected, "{name}");
        }
    }
}
