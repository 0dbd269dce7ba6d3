//! What this host is, and is set to: facts that no cluster object tells. Knows neither the state nor Kubernetes.

#[cfg(target_os = "linux")]
pub mod addresses;
#[cfg(target_os = "linux")]
pub mod mounts;
pub mod settings;
