//! kube-proxy's other flags: those that only stand for a field of its file. They are taken, so
//! that a manifest for kube-proxy works as it is, but `--help` leaves them out: a table, no
//! structure. Whether the field is honoured is decided where fields are.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};

use crate::config::kube_proxy::{
    Given,
    fields::{self, FieldKind},
};

/// Flags, without their dashes, and the fields that they set.
#[rustfmt::skip]
pub const FLAGS: &[(&str, &[&str])] = &[
    ("bind-address", &["bindAddress"]),
    ("config-sync-period", &["configSyncPeriod"]),
    ("conntrack-max-per-core", &["conntrack.maxPerCore"]),
    ("conntrack-min", &["conntrack.min"]),
    ("conntrack-tcp-be-liberal", &["conntrack.tcpBeLiberal"]),
    ("conntrack-tcp-timeout-close-wait", &["conntrack.tcpCloseWaitTimeout"]),
    ("conntrack-tcp-timeout-established", &["conntrack.tcpEstablishedTimeout"]),
    ("conntrack-udp-timeout", &["conntrack.udpTimeout"]),
    ("conntrack-udp-timeout-stream", &["conntrack.udpStreamTimeout"]),
    ("feature-gates", &["featureGates"]),
    ("iptables-masquerade-bit", &["iptables.masqueradeBit", "ipvs.masqueradeBit", "nftables.masqueradeBit"]),
    ("iptables-min-sync-period", &["iptables.minSyncPeriod", "nftables.minSyncPeriod"]),
    ("ipvs-exclude-cidrs", &["ipvs.excludeCIDRs"]),
    ("ipvs-min-sync-period", &["ipvs.minSyncPeriod"]),
    ("ipvs-scheduler", &["ipvs.scheduler"]),
    ("ipvs-strict-arp", &["ipvs.strictARP"]),
    ("ipvs-sync-period", &["ipvs.syncPeriod"]),
    ("ipvs-tcp-timeout", &["ipvs.tcpTimeout"]),
    ("ipvs-tcpfin-timeout", &["ipvs.tcpFinTimeout"]),
    ("ipvs-udp-timeout", &["ipvs.udpTimeout"]),
    ("kube-api-burst", &["clientConnection.burst"]),
    ("kube-api-content-type", &["clientConnection.contentType"]),
    ("kube-api-qps", &["clientConnection.qps"]),
    ("log-flush-frequency", &["logging.flushFrequency"]),
    ("log-json-info-buffer-size", &["logging.options"]),
    ("log-json-split-stream", &["logging.options"]),
    ("log-text-info-buffer-size", &["logging.options"]),
    ("log-text-split-stream", &["logging.options"]),
    ("logging-format", &["logging.format"]),
    ("oom-score-adj", &["oomScoreAdj"]),
    ("profiling", &["enableProfiling"]),
    ("show-hidden-metrics-for-version", &["showHiddenMetricsForVersion"]),
    ("v", &["logging.verbosity"]),
    ("vmodule", &["logging.vmodule"]),
];

/// Switches that stand for a part of a field only.
const SWITCHES: [&str; 2] = ["log-json-split-stream", "log-text-split-stream"];

/// Those that were given.
#[derive(Debug, Clone, Default)]
pub struct OtherArgs {
    /// In the order of the table.
    pub given: Vec<Given>,
}

impl Args for OtherArgs {
    fn augment_args(command: Command) -> Command {
        command.args(FLAGS.iter().map(|&(name, paths)| {
            let arg = Arg::new(name)
                .long(name)
                .value_name("VALUE")
                .action(ArgAction::Set)
                .allow_hyphen_values(true)
                .hide(true);
            let switch = paths
                .iter()
                .filter_map(|path| fields::at(path))
                .any(|field| field.kind == FieldKind::Switch)
                || SWITCHES.contains(&name);
            match (switch, name) {
                (true, _) => arg
                    .num_args(0..=1)
                    .require_equals(true)
                    .default_missing_value("true"),
                (false, "v") => arg.short('v'),
                (false, _) => arg,
            }
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for OtherArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = FLAGS.iter().filter_map(|(flag, paths)| {
            Some(Given {
                flag,
                paths,
                text: matches.get_one::<String>(flag)?.clone(),
            })
        });
        Ok(Self {
            given: given.collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
