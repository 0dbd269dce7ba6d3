//! The brain's side: publishes states to any number of clients, each at its own pace.
//!
//! ```text
//! owner of the state ──publish──> Publisher { newest state, recent past }
//!                                     │ a cursor for each client
//!                                     └──> feed ──operations──> client
//!                                  clients <──report────────────┘
//! ```
//!
//! States share what did not change, so a cursor is a state, and what a client misses is the
//! difference between two of them: changes of one item coalesce by themselves. A client that does
//! not read holds what it is being sent, and the state it had; nothing queues up behind it.

mod answers;
mod caller;
mod changes;
mod clients;
mod doors;
mod feed;
mod incoming;
mod listen;
mod peer;
mod publisher;
mod requests;
mod service;
pub mod socket;
#[cfg(feature = "tls")]
mod tls;

#[cfg(test)]
pub(crate) use self::{changes::Whole, feed::upsert};

#[cfg(feature = "tls")]
pub use self::tls::{TlsError, TlsProblem};
pub use self::{
    clients::{ClientStatus, Programmed},
    listen::{ListenError, ListenProblem, Listener, SOCKET_MODE, serve},
    publisher::Publisher,
};
