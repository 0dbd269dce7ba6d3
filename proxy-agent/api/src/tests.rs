//! Both sides of the API together, over real sockets. What concerns one module alone is beside it.

mod brain;
mod driver;
mod follow;
mod interrupted;
mod loopback;
mod relay;
mod reports;
mod slow;
mod sockets;
pub mod states;
mod tls;
