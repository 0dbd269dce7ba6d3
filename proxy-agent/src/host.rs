//! What this host is: facts that no cluster object tells. Knows neither the state nor Kubernetes.

#[cfg(target_os = "linux")]
pub mod addresses;
pub mod settings;
