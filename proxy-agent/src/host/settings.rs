//! What connection tracking of this host is set to, as kube-proxy sets it: the limits, which are
//! raised and never lowered, and timeouts. Here is what to write, given what is there: pure. Files
//! are `settings/apply`.

#[cfg(target_os = "linux")]
pub mod apply;

use std::time::Duration;

use proxy_backend::Timeouts;

/// Nothing that this program computes is above it; kube-proxy stops there, too.
const MOST: u64 = 1 << 20;
/// Below the file system root, the sysctls of connection tracking.
const SYSCTL: &str = "proc/sys/net/netfilter";
/// Below the file system root, the buckets of the table.
const HASH_SIZE: &str = "sys/module/nf_conntrack/parameters/hashsize";

/// What was asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HostSettings {
    /// Tracked connections for each CPU; zero leaves the limits as they are.
    pub max_per_core: u32,
    /// The least limit, however few CPUs there are.
    pub min: u32,
    /// Whether packets outside the window of TCP are valid; false leaves that as it is.
    pub tcp_be_liberal: bool,
    /// Idle times; each that is `None` is left as it is.
    pub timeouts: Timeouts,
    /// Whether any of it differs from kube-proxy's defaults: somebody wants it, and is warned if it
    /// cannot be set.
    pub explicit: bool,
}

/// How a value relates to one that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// Raised, never lowered. What is there may have been set by somebody who knows better.
    AtLeast,
    /// Raised unless it is zero, which means no limit.
    AtLeastOrUnlimited,
    /// Written where it differs.
    Exactly,
}

/// A file, and what it should hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Relative to the root of the file system.
    pub file: String,
    /// The number.
    pub value: u64,
    rule: Rule,
}

impl Wanted {
    /// Whether `now`, what the file holds, has to be replaced.
    pub const fn differs(&self, now: u64) -> bool {
        match self.rule {
            Rule::AtLeast => now < self.value,
            Rule::AtLeastOrUnlimited => now != 0 && now < self.value,
            Rule::Exactly => now != self.value,
        }
    }
}

impl HostSettings {
    /// What the files of a host with this many CPUs should hold, in the order of writing: a table of
    /// more connections first gets the buckets for them.
    pub fn wanted(&self, cpus: u32) -> Vec<Wanted> {
        let sysctl = |name: &str, value, rule| Wanted {
            file: format!("{SYSCTL}/nf_conntrack_{name}"),
            value,
            rule,
        };
        let mut all = Vec::new();
        if let Some(max) = self.max(cpus) {
            all.push(Wanted {
                file: HASH_SIZE.to_owned(),
                value: max / 4,
                rule: Rule::AtLeast,
            });
            all.push(sysctl("max", max, Rule::AtLeastOrUnlimited));
        }
        let Timeouts {
            tcp_established,
            tcp_close_wait,
            udp,
            udp_stream,
        } = self.timeouts;
        for (name, timeout) in [
            ("tcp_timeout_established", tcp_established),
            ("tcp_timeout_close_wait", tcp_close_wait),
            ("udp_timeout", udp),
            ("udp_timeout_stream", udp_stream),
        ] {
            all.extend(timeout.map(|time| sysctl(name, whole_seconds(time), Rule::Exactly)));
        }
        if self.tcp_be_liberal {
            all.push(sysctl("tcp_be_liberal", 1, Rule::Exactly));
        }
        all
    }

    fn max(&self, cpus: u32) -> Option<u64> {
        let by_cpus = u64::from(self.max_per_core) * u64::from(cpus);
        (by_cpus > 0).then(|| by_cpus.max(self.min.into()).min(MOST))
    }
}

/// A part of a second is a whole one: zero would end connections at once.
fn whole_seconds(time: Duration) -> u64 {
    let begun = u64::from(time.subsec_nanos() > 0);
    time.as_secs().saturating_add(begun)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The default of kube-proxy is not none.
    const UNTOUCHED: Timeouts = Timeouts {
        tcp_established: None,
        tcp_close_wait: None,
        udp: None,
        udp_stream: None,
    };

    fn limits(max_per_core: u32, min: u32, cpus: u32) -> Vec<u64> {
        let settings = HostSettings {
            max_per_core,
            min,
            timeouts: UNTOUCHED,
            ..HostSettings::default()
        };
        let wanted = settings.wanted(cpus);
        wanted.iter().map(|one| one.value).collect()
    }

    #[test]
    fn the_limit_grows_with_cpus_between_the_least_and_the_most() {
        assert_eq!(limits(32768, 131_072, 2), [32768, 131_072]);
        assert_eq!(limits(32768, 131_072, 8), [65536, 262_144]);
        assert_eq!(limits(32768, 131_072, 200), [262_144, 1_048_576]);
        assert!(limits(0, 131_072, 8).is_empty());
    }

    #[test]
    fn limits_are_never_lowered_and_timeouts_are_as_asked_for() {
        let settings = HostSettings {
            max_per_core: 100,
            timeouts: Timeouts {
                udp: Some(Duration::from_millis(30_500)),
                ..UNTOUCHED
            },
            tcp_be_liberal: true,
            ..HostSettings::default()
        };
        let [hash, max, udp, liberal] = settings.wanted(4).try_into().expect("four of them");
        assert!(hash.differs(99) && !hash.differs(100) && !hash.differs(5000));
        assert!(max.differs(399) && !max.differs(400) && !max.differs(5000));
        assert!(!max.differs(0), "zero is no limit");
        assert_eq!(udp.value, 31);
        assert!(udp.differs(30) && udp.differs(60) && !udp.differs(31));
        assert!(liberal.differs(0) && !liberal.differs(1));
    }
}
