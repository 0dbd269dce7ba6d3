//! Dataplanes: each turns node-local state into kernel objects behind `proxy_model::Backend`.

#[cfg(target_os = "linux")]
pub mod check;
pub mod choice;
#[cfg_attr(
    not(target_os = "linux"),
    expect(
        dead_code,
        reason = "where no kernel can be programmed, only `render` uses it"
    )
)]
pub mod ebpf;
#[cfg_attr(
    not(target_os = "linux"),
    expect(
        dead_code,
        reason = "where no kernel can be programmed, only `render` uses it"
    )
)]
pub mod nftables;
#[cfg(target_os = "linux")]
pub mod none;
#[cfg(target_os = "linux")]
pub mod open;
pub mod reference;
