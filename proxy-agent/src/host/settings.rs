//! What connection tracking of this host is set to, as kube-proxy sets it: the limits, which are
//! raised and never lowered, and timeouts. Here is what to write, given what is there: pure. Files
//! are `settings/apply`.

#[cfg(target_os = "linux")]
pub mod apply;

use std::time::Duration;

use proxy_backend::Timeouts;

/// Nothing that this program computes is above it; kube-proxy stops there, too.
const MOST: u64 = 1 << 20;

/// What was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostSettings {
    /// Tracked connections for each CPU; zero leaves the limits as they are.
    pub max_per_core: u32,
    /// The least limit, however few CPUs there are.
    pub min: u32,
    /// Whether packets outside the window of TCP are valid; false leaves that as it is.
    pub tcp_be_liberal: bool,
    /// Idle times; each that is `None` is left as it is.
    pub timeouts: Timeouts,
}

impl Default for HostSettings {
    /// kube-proxy's.
    fn default() -> Self {
        Self {
            max_per_core: 32768,
            min: 131_072,
            tcp_be_liberal: false,
            timeouts: Timeouts::default(),
        }
    }
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
    /// Its name, in the directory of netfilter's sysctls.
    pub file: String,
    /// The number.
    pub value: u64,
    /// Whether the defaults ask for something else: then somebody wants it, and should know if it cannot be
    /// had. Generated files spell the defaults out, and that asks for nothing.
    pub is_asked_for: bool,
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
        let defaults = Self::default().values(cpus);
        let values = self.values(cpus).into_iter();
        let wanted = values.map(|one| Wanted {
            is_asked_for: !defaults.contains(&one),
            file: one.0,
            value: one.1,
            rule: one.2,
        });
        wanted.collect()
    }

    fn values(&self, cpus: u32) -> Vec<(String, u64, Rule)> {
        let sysctl = |name, value, rule| (format!("nf_conntrack_{name}"), value, rule);
        let mut all = Vec::new();
        if let Some(max) = self.max(cpus) {
            // As the module's parameter `hashsize`, which only a privileged container may write.
            all.push(sysctl("buckets", max / 4, Rule::AtLeast));
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
            tcp_be_liberal: false,
            timeouts: UNTOUCHED,
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
            min: 0,
        };
        let [buckets, max, udp, liberal] = settings.wanted(4).try_into().expect("four of them");
        assert!(buckets.differs(99) && !buckets.differs(100) && !buckets.differs(5000));
        assert!(max.differs(399) && !max.differs(400) && !max.differs(5000));
        assert!(!max.differs(0), "zero is no limit");
        assert_eq!(udp.value, 31);
        assert!(udp.differs(30) && udp.differs(60) && !udp.differs(31));
        assert!(liberal.differs(0) && !liberal.differs(1));
    }

    #[test]
    fn what_the_defaults_set_nobody_asked_for() {
        let asked_for = |settings: &HostSettings, cpus| {
            let wanted = settings.wanted(cpus).into_iter();
            let asked = wanted.filter(|one| one.is_asked_for);
            let names = asked.map(|one| one.file.rsplit_once('_').unwrap().1.to_owned());
            names.collect::<Vec<_>>()
        };
        assert!(asked_for(&HostSettings::default(), 2).is_empty());
        let settings = HostSettings {
            min: 100,
            timeouts: Timeouts {
                udp_stream: Some(Duration::from_mins(3)),
                ..Timeouts::default()
            },
            ..HostSettings::default()
        };
        assert_eq!(asked_for(&settings, 2), ["buckets", "max", "stream"]);
        // The CPUs ask for more.
        assert_eq!(asked_for(&settings, 200), ["stream"]);
    }
}
