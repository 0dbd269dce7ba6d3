//! Flows through the decisions, against maps in memory.

mod again;
mod connections;
mod cpu;
mod datagrams;
mod direct;
mod entries;
mod errors;
mod fragments;
mod journey;
mod orders;
mod orders_of_answers;
mod orders_of_ends;
mod orders_of_frontends;
mod passed;
mod random;
mod shared;
mod world;

use journey::{BOTH, Client, Family};
use world::World;
