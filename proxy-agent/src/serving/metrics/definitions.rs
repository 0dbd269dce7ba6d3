//! Every metric: name, type, labels and meaning. Registration and `docs/reference/metrics.md`
//! follow from it.

/// One metric.
#[derive(Debug, PartialEq, Eq)]
pub struct Definition {
    /// Full name.
    pub name: &'static str,
    /// Type.
    pub kind: MetricKind,
    /// Names of labels.
    pub labels: &'static [&'static str],
    /// What it tells, without a full stop.
    pub help: &'static str,
    /// Whether kube-proxy has it with the same meaning.
    pub of_kube_proxy: bool,
}

/// Type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts observations in buckets.
    Histogram,
}

impl MetricKind {
    /// As after `# TYPE`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

macro_rules! define {
    ($($const:ident = $kind:ident $name:literal [$($label:literal),*] $same:literal, $help:literal;)*) => {
        $(
            pub(super) const $const: Definition = Definition {
                name: $name,
                kind: MetricKind::$kind,
                labels: &[$($label),*],
                help: $help,
                of_kube_proxy: $same,
            };
        )*

        /// All that the agent itself counts, in the order of the reference page.
        pub const ALL: &[Definition] = &[$($const),*];
    };
}

define! {
    SYNC_DURATION = Histogram "kubeproxy_sync_proxy_rules_duration_seconds" ["ip_family"] true,
        "Time to bring a change into force in every layer: model and kernel; one sync serves both families";
    FULL_SYNC_DURATION = Histogram "kubeproxy_sync_full_proxy_rules_duration_seconds" ["ip_family"] true,
        "Time of syncs of the whole state: the first one, and the one after a failed one";
    PARTIAL_SYNC_DURATION = Histogram "kubeproxy_sync_partial_proxy_rules_duration_seconds" ["ip_family"] true,
        "Time of syncs of what changed only";
    LAST_SYNC = Gauge "kubeproxy_sync_proxy_rules_last_timestamp_seconds" ["ip_family"] true,
        "When the kernel was last known to have all that it should: after a sync, a comparison, or a change that needs no sync";
    LAST_QUEUED = Gauge "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds" ["ip_family"] true,
        "When a change was last queued for a sync";
    NETWORK_PROGRAMMING = Histogram "kubeproxy_network_programming_duration_seconds" ["ip_family"] true,
        "Time from the change of a pod or Service to the state in the kernel, by the clock of the control plane (annotation endpoints.kubernetes.io/last-change-trigger-time)";
    ENDPOINT_CHANGES = Counter "kubeproxy_sync_proxy_rules_endpoint_changes_total" [] true,
        "EndpointSlices that changed";
    ENDPOINT_CHANGES_PENDING = Gauge "kubeproxy_sync_proxy_rules_endpoint_changes_pending" [] true,
        "EndpointSlices whose change is not in force yet";
    SERVICE_CHANGES = Counter "kubeproxy_sync_proxy_rules_service_changes_total" [] true,
        "Services that changed";
    SERVICE_CHANGES_PENDING = Gauge "kubeproxy_sync_proxy_rules_service_changes_pending" [] true,
        "Services whose change is not in force yet";
    NO_LOCAL_ENDPOINTS = Gauge "kubeproxy_sync_proxy_rules_no_local_endpoints_total" ["ip_family", "traffic_policy"] true,
        "Service ports with policy Local that have endpoints, but none on this node; one with both \
         policies Local counts for both";
    HEALTHZ = Counter "kubeproxy_proxy_healthz_total" ["code"] true,
        "Answers of /healthz on the health port";
    LIVEZ = Counter "kubeproxy_proxy_livez_total" ["code"] true,
        "Answers of /livez on the health port";
    CONNTRACK_DELETED = Counter "kubeproxy_conntrack_reconciler_deleted_entries_total" ["ip_family"] true,
        "Stale UDP flows removed from the kernel's connection tracking; only with packet backends, \
         because connections that are redirected at the socket are not tracked";
    CONNTRACK_DURATION = Histogram "kubeproxy_conntrack_reconciler_sync_duration_seconds" ["ip_family"] true,
        "Time to find stale UDP flows and remove them; only after changes that may leave some";
    BUILD = Gauge "culvert_build_info" ["version", "backend"] false,
        "1 for the backend of each layer in use, with the version of the agent, and 0 for the others";
    SOURCE_SYNCED = Gauge "culvert_source_synced" [] false,
        "1 once the source has delivered the whole cluster; nothing is programmed before";
    NODE_MISSING = Gauge "culvert_node_missing" [] false,
        "1 while no node of the cluster has this agent's node name; the log and `state` list \
         existing names";
    EVENTS = Counter "culvert_events_total" [] false,
        "Events from the source, whether or not they changed anything";
    REVISIONS = Counter "culvert_revisions_total" [] false,
        "How often a new state came into force in every layer; events that arrive together share one";
    SYNC_FAILURES = Counter "culvert_sync_failures_total" [] false,
        "Syncs and comparisons in which a layer failed as a whole and is retried";
    COMPARISONS = Counter "culvert_comparisons_total" [] false,
        "How often the kernel was compared with the state";
    LAST_COMPARISON = Gauge "culvert_last_comparison_timestamp_seconds" [] false,
        "When the kernel was last compared with the state, and repaired; 0 before the first time";
    REPAIRS = Counter "culvert_repairs_total" ["difference"] false,
        "Objects in the kernel that another process changed and that were repaired";
    SERVICES = Gauge "culvert_service_ports" ["ip_family"] false,
        "Service ports in the state of this node";
    ENDPOINTS = Gauge "culvert_endpoints" ["ip_family"] false,
        "Endpoints of these Service ports; one behind two Service ports counts twice";
    NOT_PROGRAMMED = Gauge "culvert_service_ports_not_programmed" ["ip_family"] false,
        "Service ports that a layer could not program; the log and `state` name them";
    HEALTH_CHECK_PORTS = Gauge "culvert_health_check_ports" ["state"] false,
        "Health check node ports, counted once per address, by whether the agent listens there \
         (listening, failed); the log names those that failed";
    CAPABILITY_GAPS = Gauge "culvert_capability_gaps" ["capability"] false,
        "Service ports that need what all layers lack; the log and `state` name them";
    BACKEND_LACKS = Gauge "culvert_backend_lacks" ["capability"] false,
        "1 for what none of the layers in use can do, whether or not a Service port needs it";
    BACKEND_CHOICE = Gauge "culvert_backend_choice" ["mode", "backend", "reason"] false,
        "1 for the backend of each layer in use, with the reason: the mode names one (named), they \
         are the first that this host supports (first), another one cannot be used here \
         (instead); 0 for all others; `state` gives details";
    BACKEND_REFUSED = Gauge "culvert_backend_refused" ["backend"] false,
        "1 for a backend that was examined and cannot be used on this host; the log and `state` \
         say why";
    BACKEND_CHANGES = Counter "culvert_backend_changes_total" [] false,
        "How often a layer was replaced, or given up, because its backend cannot be used here";
    LAYER_IN_FORCE = Gauge "culvert_layer_in_force" ["layer"] false,
        "1 for a layer that holds the newest state, 0 for one that is behind or not in use";
    LAYER_SYNC_FAILURES = Counter "culvert_layer_sync_failures_total" ["layer"] false,
        "Syncs and comparisons of a layer that failed as a whole and are retried";
    LAYER_REPAIRS = Counter "culvert_layer_repairs_total" ["layer"] false,
        "Objects of a layer in the kernel that another process changed and that were repaired";
    LAYER_NOT_PROGRAMMED = Gauge "culvert_layer_service_ports_not_programmed" ["layer"] false,
        "Service ports that the layer could not program; the log and `state` name them";
    CONFIG_RELOADS = Counter "culvert_config_reloads_total" ["result"] false,
        "How often the changed configuration file was applied while serving (applied) or by executing \
         the process anew (restarted; only this one goes on counting then), or was refused (refused)";
    CONFIG_LAST_RELOAD = Gauge "culvert_config_last_reload_successful" [] false,
        "0 while the configuration file differs from what is in force because it was refused, otherwise 1; \
         the log says why";
    DIAGNOSTICS = Gauge "culvert_diagnostics" [] false,
        "Parts of objects that are invalid or not served; the log and `state` list them";
    LOG_LINES_LOST = Counter "culvert_log_lines_lost_total" [] false,
        "Log lines lost because the reader of standard error was too slow, or had no space left; \
         the agent does not wait";
}

/// Of the clients of the node API. There is nothing of it before a client reports.
pub(in crate::serving) const CLIENT_PROGRAMMING: Definition = Definition {
    name: "culvert_client_network_programming_duration_seconds",
    kind: MetricKind::Histogram,
    labels: &["client", "ip_family"],
    help: "Time from the change of a pod or Service until the client reported it in force, by the clock of the control plane",
    of_kube_proxy: false,
};

/// What the metrics library reads from the kernel about this process.
pub const OF_PROCESS: &[(&str, MetricKind, &str)] = &[
    (
        "process_cpu_seconds_total",
        MetricKind::Counter,
        "CPU time in whole seconds",
    ),
    (
        "process_max_fds",
        MetricKind::Gauge,
        "File descriptors that may be open",
    ),
    (
        "process_open_fds",
        MetricKind::Gauge,
        "File descriptors that are open",
    ),
    (
        "process_resident_memory_bytes",
        MetricKind::Gauge,
        "Resident memory in bytes",
    ),
    (
        "process_start_time_seconds",
        MetricKind::Gauge,
        "When the process started",
    ),
    ("process_threads", MetricKind::Gauge, "Threads"),
    (
        "process_virtual_memory_bytes",
        MetricKind::Gauge,
        "Virtual memory in bytes",
    ),
];

/// Upper bounds of the buckets of a histogram.
pub(in crate::serving) fn buckets(definition: &Definition) -> Vec<f64> {
    if [NETWORK_PROGRAMMING, CLIENT_PROGRAMMING].contains(definition) {
        network_programming_buckets()
    } else {
        (0..15).map(|power| 0.001 * f64::from(1 << power)).collect()
    }
}

/// kube-proxy's, with the bucket for 0 that its way of joining lists makes: queries over nodes of
/// both kinds need equal bounds.
fn network_programming_buckets() -> Vec<f64> {
    let quarters = [0.0, 0.25, 0.5];
    let seconds = (1..60).map(f64::from);
    let by_five = (60..120).step_by(5).map(f64::from);
    let by_thirty = (120..=300).step_by(30).map(f64::from);
    let all = quarters.into_iter().chain(seconds);
    all.chain(by_five).chain(by_thirty).collect()
}
