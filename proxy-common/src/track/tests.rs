//! Flows through the decisions, against maps in memory.

mod again;
mod anew;
mod broken;
mod connections;
mod datagrams;
mod direct;
mod direct_datagrams;
mod elsewhere;
mod errors;
mod foreign;
mod forged;
mod fragments;
mod journey;
mod kept;
mod orders;
mod orders_elsewhere;
mod orders_of_answers;
mod orders_of_ends;
mod orders_of_frontends;
mod passed;
mod places;
mod ports;
mod random;
mod ranges;
mod shared;
mod spoofed;

use crate::in_memory::{World, cpu, maps};
use journey::{BOTH, Client, EVERY, Family};
