//! What is worth watching of the iptables backend. What kube-proxy counts, too, has kube-proxy's name.

use proxy_conntrack::Cleaner;
use proxy_model::{Figure, FigureKind, IpFamily};

use super::{
    programs::ProgramError,
    tables::{Rules, Tables},
};
use crate::table::Table;

const FAMILIES: [IpFamily; 2] = [IpFamily::V4, IpFamily::V6];

/// A count for each family.
#[derive(Debug, Default, Clone, Copy)]
pub struct ByFamily([u64; FAMILIES.len()]);

impl ByFamily {
    /// One more.
    pub fn add(&mut self, family: IpFamily) {
        self.add_many(family, 1);
    }

    /// So many more.
    pub fn add_many(&mut self, family: IpFamily, count: usize) {
        self.0[usize::from(family == IpFamily::V6)] += count as u64;
    }
}

/// What it counts.
#[derive(Debug, Default)]
pub struct Counts {
    /// Chains and rules that were written.
    pub written: u64,
    /// Comparisons of all tables.
    pub whole: u64,
    /// Restores that failed.
    pub failed: ByFamily,
    /// Those among them that were of a change.
    pub partial_failed: ByFamily,
    /// Times that others held the lock for too long.
    pub locked: u64,
    /// Comparisons that verified changes.
    pub verified: u64,
    /// Chains in which these found something else.
    pub differences: ByFamily,
}

impl Counts {
    /// Counts what `error` tells of others.
    pub fn look_at(&mut self, error: &ProgramError) {
        self.locked += u64::from(matches!(error, ProgramError::Locked { .. }));
    }
}

/// Every figure at its start, for the reference page.
pub fn figures_described() -> Vec<Figure> {
    figures(&Counts::default(), [Some(0); 2], &[], &Cleaner::new())
}

/// The figures, with those of cleaning conntrack. `packets`: how many the kernel has counted by each of its
/// [counters](crate::table::counters).
pub(super) fn figures(
    counts: &Counts,
    packets: [Option<u64>; 2],
    families: &[Tables],
    cleaner: &Cleaner,
) -> Vec<Figure> {
    let mut figures = vec![
        counter(
            "written_objects_total",
            "Chains and rules written or removed.",
            counts.written,
        ),
        counter(
            "comparisons_total",
            "How often all tables were read and compared.",
            counts.whole,
        ),
        counter(
            "lock_timeouts_total",
            "How often others held the lock of the tables for too long.",
            counts.locked,
        ),
        counter(
            "verifications_total",
            "How often all tables were compared because changes were to be verified.",
            counts.verified,
        ),
    ];
    for (name, help, count) in [
        (
            "partial_restore_differences_total",
            "Chains that partial restores left otherwise than a full one would; each is a defect, or with the legacy flavour somebody wrote the same table just then, and was mended.",
            counts.differences,
        ),
        (
            "kubeproxy_sync_proxy_rules_iptables_restore_failures_total",
            "Restores that failed, or the reading of tables before them.",
            counts.failed,
        ),
        (
            "kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total",
            "Restores of a change that failed: all tables were compared then.",
            counts.partial_failed,
        ),
    ] {
        figures.extend(FAMILIES.iter().zip(count.0).map(|(family, count)| Figure {
            labels: vec![("ip_family", family.as_str().to_owned())],
            ..counter(name, help, count)
        }));
    }
    for (name, help, count) in [
        (
            "kubeproxy_iptables_ct_state_invalid_dropped_packets_total",
            "Packets that conntrack takes for none of a connection, dropped where they would be forwarded. Only where \
             the kernel has nfacct.",
            packets[0],
        ),
        (
            "kubeproxy_iptables_localhost_nodeports_accepted_packets_total",
            "Connections that this host opened to NodePorts on 127.0.0.0/8. Only where the kernel has nfacct.",
            packets[1],
        ),
    ] {
        figures.extend(count.map(|count| counter(name, help, count)));
    }
    figures.extend(of_tables(families));
    figures.extend(cleaner.figures());
    figures
}

fn counter(name: &'static str, help: &'static str, value: u64) -> Figure {
    Figure {
        name,
        kind: FigureKind::Counter,
        help,
        labels: Vec::new(),
        value: Figure::exact(value),
    }
}

fn of_tables(families: &[Tables]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (name, help, of) in [
        (
            "kubeproxy_sync_proxy_rules_iptables_total",
            "Rules that are ours.",
            (|rules: &Rules| rules.there) as fn(&Rules) -> usize,
        ),
        (
            "kubeproxy_sync_proxy_rules_iptables_last",
            "Rules that were written last.",
            |rules| rules.written,
        ),
    ] {
        for family in FAMILIES {
            let tables = families.iter().find(|tables| tables.family == family);
            for table in [Table::Filter, Table::Nat] {
                let rules = tables.and_then(|tables| tables.rules.get(&table));
                figures.push(Figure {
                    name,
                    kind: FigureKind::Gauge,
                    help,
                    labels: vec![
                        ("ip_family", family.as_str().to_owned()),
                        ("table", table.name().to_owned()),
                    ],
                    value: Figure::exact(rules.map_or(0, of) as u64),
                });
            }
        }
    }
    figures
}
