//! Dataplanes: each turns node-local state into kernel objects behind `proxy_model::Backend`.

pub mod check;
pub mod choice;
pub mod ebpf;
