//! Every suite that needs root: they make namespaces and cgroups, and program a real kernel. Each is a module,
//! and its name begins those of its tests.

mod adopt;
mod affinity;
mod api_server;
mod ask;
mod bad_input;
mod bypasses;
mod capabilities;
mod cleanup;
mod conntrack;
mod edge;
mod edge_faults;
mod host;
mod host_settings;
mod image;
mod installed;
mod journey;
mod layers;
mod leftovers;
mod limits;
mod live;
mod load;
mod neighbours;
mod nftables;
mod node_api;
mod node_life;
mod pins;
mod refused;
mod repair;
mod resize;
mod restart;
mod rights;
mod serving;
mod switch;
mod take_over;
mod world;
