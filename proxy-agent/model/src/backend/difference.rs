//! How a dataplane differs from what it should be, in words that every backend shares. Knows no
//! backend: what an object is called is the backend's business.

use std::fmt;

use super::ServiceFailure;
use crate::ServicePortKey;

/// One thing in the dataplane that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// What it is, as the backend's own tools call it: `FRONTENDS 10.96.0.1:53/UDP`,
    /// `link culvert_conn4`.
    pub object: String,
    /// How it differs.
    pub kind: DifferenceKind,
    /// The Service port that it belongs to, if it belongs to one.
    pub service: Option<ServicePortKey>,
    /// What should be there, if anything.
    pub wanted: Option<String>,
    /// What is there, if anything.
    pub found: Option<String>,
}

/// How an object differs from what it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DifferenceKind {
    /// It is not there.
    Missing,
    /// It is there and should not be.
    Unexpected,
    /// It is there with another content.
    Changed,
    /// A program is attached to nothing, or to something else.
    Detached,
    /// Another program, or none of ours, is where ours should be.
    Replaced,
    /// It works, but a restart of the agent would not find it.
    Unpinned,
}

impl DifferenceKind {
    /// Every kind, for counters that start at 0.
    pub const ALL: [Self; 6] = [
        Self::Missing,
        Self::Unexpected,
        Self::Changed,
        Self::Detached,
        Self::Replaced,
        Self::Unpinned,
    ];

    /// One word, as metrics and JSON have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Unexpected => "unexpected",
            Self::Changed => "changed",
            Self::Detached => "detached",
            Self::Replaced => "replaced",
            Self::Unpinned => "unpinned",
        }
    }
}

impl fmt::Display for DifferenceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.object, self.kind)?;
        if let Some(wanted) = &self.wanted {
            write!(f, ", wanted {wanted}")?;
        }
        if let Some(found) = &self.found {
            write!(f, ", found {found}")?;
        }
        if let Some(service) = self.service.as_ref().map(ToString::to_string)
            && !self.object.contains(&service)
        {
            write!(f, " ({service})")?;
        }
        Ok(())
    }
}

/// What a successful [`super::Backend::repair`] did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RepairReport {
    /// What differed, and is as it should be now.
    pub repaired: Vec<Difference>,
    /// Kernel objects written (inserted, changed, removed, pinned or attached); 0 when nothing
    /// differed and no Service port had failed before.
    pub writes: usize,
    /// Service ports that cannot be programmed, as in [`super::SyncReport`].
    pub failures: Vec<ServiceFailure>,
    /// What differs still. The next repair tries again.
    pub problems: Vec<Problem>,
}

/// Why something differs still.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// What was attempted, what stopped it, and what to do.
    pub reason: String,
    /// Whether connections are therefore not decided as the state wants: the state is not in force.
    pub harms: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{IpFamily, ObjectName, Protocol};

    #[test]
    fn a_difference_reads_as_a_sentence() {
        let difference = Difference {
            object: "FRONTENDS 10.96.0.1:53/UDP".to_owned(),
            kind: DifferenceKind::Changed,
            service: Some(ServicePortKey {
                service: ObjectName::new("kube-system", "kube-dns"),
                port: "dns".into(),
                protocol: Protocol::Udp,
                family: IpFamily::V4,
            }),
            wanted: Some("service 3 cluster-set 4".to_owned()),
            found: Some("service 9".to_owned()),
        };
        assert_eq!(
            difference.to_string(),
            "FRONTENDS 10.96.0.1:53/UDP: changed, wanted service 3 cluster-set 4, found service 9 \
             (kube-system/kube-dns:dns/UDP/IPv4)"
        );
        let bare = Difference {
            object: "link culvert_conn4".to_owned(),
            kind: DifferenceKind::Detached,
            service: None,
            wanted: None,
            found: None,
        };
        assert_eq!(bare.to_string(), "link culvert_conn4: detached");
    }
}
