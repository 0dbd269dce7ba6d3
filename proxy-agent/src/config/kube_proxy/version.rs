//! The versions of the file. Each field of a version sets one field of the table, or several where the version
//! has one for all modes (KEP-784). What is read, written and documented of a version follows from here.

use std::{fmt, sync::LazyLock};

use super::{
    fields::{FIELDS, Field, FieldKind, at},
    value::Setting,
};

/// A version of `kubeproxy.config.k8s.io`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Version {
    /// kube-proxy's since 2017.
    #[default]
    V1Alpha1,
    /// KEP-784's: what is for one system or one mode apart, what they share once.
    V1Alpha2,
}

/// What every version is a version of.
const GROUP: &str = "kubeproxy.config.k8s.io/";

/// A field of a version.
#[derive(Debug, Clone)]
pub struct Spelling {
    /// Where it is: names joined by dots.
    pub path: &'static str,
    /// The fields of the table that it sets; at least one.
    pub sets: &'static [&'static str],
    /// What it holds.
    pub kind: FieldKind,
    /// Its default, as a flag would have it.
    pub default: &'static str,
    /// Whether a zero value in a file means the default.
    pub zero_is_default: bool,
}

impl Spelling {
    /// The first field that it sets: what it means is there.
    pub fn field(&self) -> &'static Field {
        at(self.sets[0]).expect("spellings name fields of the table")
    }

    /// Whether a file that says this means the default.
    pub(super) fn means_default(&self, setting: &Setting) -> bool {
        self.zero_is_default && setting.is_zero()
    }

    /// Its default.
    pub(super) fn default(&self) -> Setting {
        Setting::of_text(self.kind, self.default)
            .expect("defaults in the table have the right type")
    }
}

const PERIODS: &[&str] = &[
    "iptables.syncPeriod",
    "ipvs.syncPeriod",
    "nftables.syncPeriod",
];
const LEAST_PERIODS: &[&str] = &[
    "iptables.minSyncPeriod",
    "ipvs.minSyncPeriod",
    "nftables.minSyncPeriod",
];
const MASQUERADE_ALL: &[&str] = &["iptables.masqueradeAll", "nftables.masqueradeAll"];

/// What v1alpha2 has elsewhere, and what that is in the table.
const MOVED: &[(&str, &[&str])] = &[
    ("detectLocal.clusterCIDRs", &["clusterCIDR"]),
    ("linux.conntrack.maxPerCore", &["conntrack.maxPerCore"]),
    ("linux.conntrack.min", &["conntrack.min"]),
    ("linux.conntrack.tcpBeLiberal", &["conntrack.tcpBeLiberal"]),
    (
        "linux.conntrack.tcpCloseWaitTimeout",
        &["conntrack.tcpCloseWaitTimeout"],
    ),
    (
        "linux.conntrack.tcpEstablishedTimeout",
        &["conntrack.tcpEstablishedTimeout"],
    ),
    (
        "linux.conntrack.udpStreamTimeout",
        &["conntrack.udpStreamTimeout"],
    ),
    ("linux.conntrack.udpTimeout", &["conntrack.udpTimeout"]),
    ("linux.masqueradeAll", MASQUERADE_ALL),
    ("linux.oomScoreAdj", &["oomScoreAdj"]),
    ("minSyncPeriod", LEAST_PERIODS),
    ("syncPeriod", PERIODS),
    ("windows.runAsService", &["windowsRunAsService"]),
];

/// What v1alpha2 has another default for.
const OTHER_DEFAULTS: &[(&str, &str)] = &[
    ("bindAddressHardFail", "true"),
    ("iptables.localhostNodePorts", "false"),
];

static FIRST: LazyLock<Vec<Spelling>> = LazyLock::new(|| Version::V1Alpha1.unmoved().collect());
static SECOND: LazyLock<Vec<Spelling>> = LazyLock::new(|| {
    let is_moved = |path: &str| MOVED.iter().any(|(_, sets)| sets.contains(&path));
    let stay = Version::V1Alpha2
        .unmoved()
        .filter(|spelling| !is_moved(spelling.path))
        .map(|spelling| Spelling {
            default: OTHER_DEFAULTS
                .iter()
                .find(|(path, _)| *path == spelling.path)
                .map_or(spelling.default, |(_, default)| default),
            ..spelling
        });
    let moved = MOVED.iter().map(|(path, sets)| {
        let field = at(sets[0]).expect("moved fields are in the table");
        Spelling {
            path,
            sets,
            kind: match *path {
                "detectLocal.clusterCIDRs" => FieldKind::Texts,
                _ => field.kind,
            },
            default: field.default,
            // That of IPVS may be zero, whose default that is in v1alpha1.
            zero_is_default: field.zero_means_default() && *path != "minSyncPeriod",
        }
    });
    stay.chain(moved).collect()
});

impl Version {
    /// All of them, the oldest first.
    pub const ALL: [Self; 2] = [Self::V1Alpha1, Self::V1Alpha2];

    /// The newest one, which is what is written.
    pub const NEWEST: Self = Self::V1Alpha2;

    /// What it is called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::V1Alpha1 => "v1alpha1",
            Self::V1Alpha2 => "v1alpha2",
        }
    }

    /// What a file of this version has as its `apiVersion`.
    pub fn api_version(self) -> String {
        format!("{GROUP}{}", self.name())
    }

    /// The version of a file with this `apiVersion`.
    pub fn of_api_version(text: &str) -> Option<Self> {
        let name = text.strip_prefix(GROUP)?;
        Self::ALL.into_iter().find(|version| version.name() == name)
    }

    /// Its fields.
    pub fn spellings(self) -> &'static [Spelling] {
        match self {
            Self::V1Alpha1 => &FIRST,
            Self::V1Alpha2 => &SECOND,
        }
    }

    /// The field at `path`, as this version spells it.
    pub fn at(self, path: &str) -> Option<&'static Spelling> {
        self.spellings()
            .iter()
            .find(|spelling| spelling.path == path)
    }

    /// How this version spells the field of the table at `path`.
    pub fn spelling_of(self, path: &str) -> Option<&'static Spelling> {
        let mut all = self.spellings().iter();
        all.find(|spelling| spelling.sets.contains(&path))
    }

    /// The path of that, or `path` where this version has no such field.
    pub fn spelled(self, path: &str) -> &str {
        self.spelling_of(path)
            .map_or(path, |spelling| spelling.path)
    }

    /// Whether `path` is a section: some field lies below it.
    pub fn is_section(self, path: &str) -> bool {
        self.spellings().iter().any(|spelling| {
            let rest = spelling.path.strip_prefix(path);
            rest.is_some_and(|rest| rest.starts_with('.'))
        })
    }

    /// Whether a field that it does not have is a mistake, unless the file says otherwise. kube-proxy ignores it
    /// in v1alpha1.
    pub fn is_strict(self) -> bool {
        self == Self::V1Alpha2
    }

    /// Fields that are where the table has them.
    fn unmoved(self) -> impl Iterator<Item = Spelling> {
        let all = FIELDS.iter();
        all.filter(move |field| field.only.is_none_or(|only| only == self))
            .map(|field| Spelling {
                path: field.path,
                sets: std::slice::from_ref(&field.path),
                kind: field.kind,
                default: field.default,
                zero_is_default: field.zero_means_default(),
            })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_of_the_table_has_a_spelling_in_its_versions_and_only_there() {
        for version in Version::ALL {
            for field in FIELDS.iter() {
                let is_there = field.only.is_none_or(|only| only == version);
                let spelling = version.spelling_of(field.path);
                assert_eq!(spelling.is_some(), is_there, "{version}: {}", field.path);
            }
            for spelling in version.spellings() {
                assert_eq!(
                    version.at(spelling.path).map(|one| one.path),
                    Some(spelling.path)
                );
                assert!(!version.is_section(spelling.path), "{}", spelling.path);
                spelling.default();
            }
        }
    }

    #[test]
    fn versions_are_known_by_what_a_file_says() {
        for version in Version::ALL {
            assert_eq!(
                Version::of_api_version(&version.api_version()),
                Some(version)
            );
        }
        assert_eq!(Version::of_api_version("v1alpha1"), None);
        assert_eq!(Version::of_api_version("kubeproxy.config.k8s.io/v1"), None);
    }

    #[test]
    fn what_differs_between_the_versions() {
        let paths = |version: Version| version.spellings().iter().map(|one| one.path);
        let has = |version: Version, path| paths(version).any(|one| one == path);
        for (first, second) in [
            (Some("clusterCIDR"), Some("detectLocal.clusterCIDRs")),
            (Some("nftables.syncPeriod"), Some("syncPeriod")),
            (Some("windowsRunAsService"), Some("windows.runAsService")),
            (Some("portRange"), None),
            (Some("bindAddress"), None),
            (None, Some("nodeIPOverride")),
            (None, Some("configHardFail")),
            (None, Some("ipvs.masqueradeBit")),
        ] {
            for path in [first, second].into_iter().flatten() {
                assert_eq!(has(Version::V1Alpha1, path), Some(path) == first, "{path}");
                assert_eq!(has(Version::V1Alpha2, path), Some(path) == second, "{path}");
            }
        }
        assert!(Version::V1Alpha2.is_section("linux.conntrack"));
        assert!(!Version::V1Alpha1.is_section("linux"));
    }
}
