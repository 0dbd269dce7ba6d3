//! Virtual machines with other kernels, made for one command and thrown away.

pub(crate) mod hypervisor;
pub(crate) mod kernels;
