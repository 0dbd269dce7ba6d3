//! Dataplanes: each turns node-local state into kernel objects behind `proxy_model::Backend`.

#[cfg(target_os = "linux")]
pub mod check;
pub mod choice;
#[cfg(target_os = "linux")]
pub mod none;
pub mod reference;
