//! What an API server does wrong, one test for each: the source always ends in the state of what
//! the server holds, and goes on from there. No root, no kernel.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "api_faults/connections.rs"]
mod connections;
#[path = "api_faults/follower.rs"]
mod follower;
#[path = "api_faults/lists.rs"]
mod lists;
#[path = "api_faults/objects.rs"]
mod objects;
#[path = "api_faults/random.rs"]
mod random;
#[path = "api_faults/refusals.rs"]
mod refusals;
#[path = "api_faults/transcripts.rs"]
mod transcripts;
#[path = "api_faults/watches.rs"]
mod watches;
