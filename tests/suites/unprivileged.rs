//! Every suite that needs no root and loads no program. Each is a module,
//! and its name begins those of its tests.

mod api_faults;
mod kube_proxy;
mod reference;
