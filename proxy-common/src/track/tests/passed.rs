//! Why packets are not translated: each reason, what is remembered of it, and for how long.

use std::{format, string::ToString as _, vec::Vec};

use super::{
    BOTH, Client, EVERY, Family, World,
    journey::{SET, ack, at, data, datagram, fin, syn, taken},
};
use crate::{
    address,
    frontend::{FrontendValue, OUTSIDE_TO_CLUSTER, OUTSIDE_TO_LOCAL, RANGED, SCOPE_NODE},
    in_memory::{Build, Payload},
    node::NodeAddressKey,
    packet::parse::flags,
    socket::{TCP, UDP},
    track::{
        ALONE, LEAVING, PODS_V4, PODS_V6, Prefix, Table,
        reason::{Outcome, Reason},
    },
};

fn passed(reason: Reason) -> Result<std::net::SocketAddr, Outcome> {
    Err(Outcome::passed(reason))
}

fn change(world: &World, change: impl Fn(&mut FrontendValue)) {
    let keys: Vec<_> = world.maps(|maps| maps.frontends.keys().copied().collect());
    for key in keys {
        world.put(key, &change);
    }
}

/// Makes all that begins be passed on for a reason, by what the agent wrote.
type Refusal = fn(&Family, &World);

/// Reasons that hold whatever else happens, and those that a later packet may not meet.
const LASTING: [(Reason, Refusal); 4] = [
    (Reason::NoEndpoint, |family, world| family.lead(world, &[])),
    (Reason::SourceRanges, |_, world| {
        change(world, |value| value.flags |= RANGED);
    }),
    (Reason::LocalSource, |family, world| {
        let address = address::from_ip(at(family.client).ip());
        world.maps(|maps| maps.node_addresses.push(NodeAddressKey { address }));
    }),
    (Reason::LocalSource, |family, world| {
        let address = address::from_ip(at(family.client).ip());
        let own = Prefix {
            address,
            mask: [0xff; 16],
        };
        world.maps(|maps| {
            maps.settings.flags |= PODS_V4 | PODS_V6;
            maps.settings.pods = [own; 2];
        });
    }),
];

const FOR_NOW: [(Reason, Refusal); 4] = [
    (Reason::Unsaid, |_, world| {
        change(world, |value| value.flags = 0);
    }),
    (Reason::Leaving, |_, world| {
        world.maps(|maps| maps.settings.flags |= LEAVING);
    }),
    (Reason::TableFull, |_, world| {
        world.maps(|maps| maps.settings.most_flows = 0);
    }),
    (Reason::Changed, |_, world| {
        world.maps(|maps| maps.sets.remove(&SET));
    }),
];

/// Everything is as usual again.
fn restore(family: &Family, world: &World) {
    let usual = family.world(1).into_maps();
    world.maps(|maps| {
        maps.frontends = usual.frontends;
        maps.sets = usual.sets;
        maps.node_addresses = usual.node_addresses;
        maps.settings = usual.settings;
        maps.ranges = usual.ranges;
    });
}

#[test]
fn a_connection_that_was_left_to_the_layer_beneath_stays_there() {
    for family in EVERY {
        for (reason, refuse) in FOR_NOW {
            let world = family.world(1);
            let client = family.client(&world);
            refuse(&family, &world);
            assert_eq!(client.sends(syn()), passed(reason));
            // The layer beneath answers meanwhile, and must see all of it.
            restore(&family, &world);
            for payload in [syn(), ack(), data(), fin()] {
                assert_eq!(client.sends(payload), passed(Reason::Beneath), "{reason:?}");
            }
            world.pass(60);
            assert_eq!(client.sends(syn()), passed(Reason::Beneath), "{reason:?}");
            // What is idle for longer is another connection.
            world.pass(61);
            assert_eq!(client.sends(data()), passed(Reason::Beneath), "{reason:?}");
            assert_eq!(client.sends(syn()), passed(Reason::Beneath), "{reason:?}");
            world.pass(61);
            client.connects();
        }
    }
}

#[test]
fn a_connection_that_would_be_passed_on_again_takes_no_room() {
    for family in EVERY {
        for (reason, refuse) in LASTING {
            let world = family.world(1);
            let client = family.client(&world);
            refuse(&family, &world);
            assert_eq!(client.sends(syn()), passed(reason));
            assert_eq!(client.sends(data()), Err(Outcome::UNTOUCHED));
            assert_eq!(world.maps(|maps| maps.opening.keys()), []);
            restore(&family, &world);
            client.connects();
        }
    }
}

#[test]
fn datagrams_that_were_left_to_the_layer_beneath_stay_there() {
    for family in EVERY {
        for (reason, refuse) in LASTING.into_iter().chain(FOR_NOW) {
            let world = family.world(1);
            let client = family.client(&world);
            refuse(&family, &world);
            assert_eq!(client.sends(datagram()), passed(reason));
            restore(&family, &world);
            for _ in 0..3 {
                world.pass(120);
                assert_eq!(client.sends(datagram()), passed(Reason::Beneath));
            }
            world.pass(121);
            client.asks();
        }
    }
}

#[test]
fn flows_that_there_are_go_on_while_none_may_begin() {
    for family in EVERY {
        for (reason, refuse) in FOR_NOW.into_iter().chain([LASTING[1], LASTING[2]]) {
            if reason == Reason::Changed {
                continue;
            }
            let world = family.world(1);
            let client = family.client(&world);
            let (endpoint, other) = (client.connects(), client.asks());
            refuse(&family, &world);
            assert_eq!(client.sends(data()), Ok(endpoint), "{reason:?}");
            assert_eq!(client.hears(endpoint, data()), Ok(()), "{reason:?}");
            assert_eq!(client.sends(datagram()), Ok(other), "{reason:?}");
            assert_eq!(client.hears(other, datagram()), Ok(()), "{reason:?}");
        }
    }
}

/// What becomes of what begins, and whether something is remembered, where no layer beneath decides about it:
/// `is_own` is the frontend's address one of this host.
fn alone(family: &Family, (reason, refuse): (Reason, Refusal), is_own: bool) {
    let policies = [OUTSIDE_TO_LOCAL, OUTSIDE_TO_CLUSTER];
    for (payload, policy) in [syn(), datagram()]
        .into_iter()
        .flat_map(|payload| policies.map(|policy| (payload.clone(), policy)))
    {
        let world = family.world(1);
        let address = address::from_ip(at(family.frontend).ip());
        world.maps(|maps| {
            maps.settings.flags |= ALONE;
            if is_own {
                maps.own_addresses.push(NodeAddressKey { address });
            }
        });
        change(&world, |value| {
            value.flags = value.flags & !(OUTSIDE_TO_LOCAL | OUTSIDE_TO_CLUSTER) | policy;
            let set = value.local_set.max(value.cluster_set);
            (value.cluster_set, value.local_set) = (set, set);
        });
        refuse(family, &world);
        let client = family.client(&world);
        let is_dropped = match reason {
            Reason::LocalSource | Reason::Leaving => false,
            Reason::NoEndpoint => !is_own,
            _ => true,
        };
        let said = format!("{reason:?} {is_own} {policy}");
        let sent = client.sends(payload.clone());
        let expected = if is_dropped {
            Outcome::dropped(reason)
        } else {
            Outcome::passed(reason)
        };
        assert_eq!(sent, Err(expected), "{said}");
        // What is sent again is decided anew.
        assert_eq!(world.maps(|maps| maps.opening.keys()), [], "{said}");
    }
}

#[test]
fn without_a_layer_beneath_nothing_is_routed_on_that_was_for_a_frontend() {
    for family in EVERY {
        for refusal in LASTING.into_iter().chain(FOR_NOW) {
            for is_own in [false, true] {
                alone(&family, refusal, is_own);
            }
        }
    }
}

/// A set without endpoints.
const NOBODY: u32 = 9;

#[test]
fn without_a_layer_beneath_nobody_answers_for_endpoints_of_other_nodes() {
    for family in BOTH {
        let world = family.world(1);
        let address = address::from_ip(at(family.frontend).ip());
        world.maps(|maps| {
            maps.settings.flags |= ALONE;
            maps.own_addresses.push(NodeAddressKey { address });
        });
        world.set(NOBODY, &[]);
        change(&world, |value| {
            value.cluster_set = value.local_set;
            value.local_set = NOBODY;
        });
        for payload in [syn(), datagram()] {
            let sent = family.client(&world).sends(payload);
            assert_eq!(sent, Err(Outcome::dropped(Reason::NoEndpoint)));
        }
    }
}

/// A first packet with this in it.
fn first(client: &Client<'_>, payload: Payload, options: usize) -> Build {
    Build {
        options,
        ..client.build(payload)
    }
}

#[test]
fn options_in_the_first_packet_are_for_the_layer_beneath_and_later_ones_are_not() {
    for family in EVERY {
        for payload in [syn(), datagram()] {
            let world = family.world(1);
            let client = family.client(&world);
            let packet = first(&client, payload.clone(), 8);
            assert_eq!(client.sends_as(&packet), passed(Reason::Options));
            assert_eq!(client.sends(payload), passed(Reason::Beneath));
        }
        let world = family.world(1);
        let client = family.client(&world);
        let endpoint = client.connects();
        assert_eq!(client.sends_as(&first(&client, data(), 8)), Ok(endpoint));
    }
}

#[test]
fn data_in_the_first_packet_is_for_the_layer_beneath() {
    for family in EVERY {
        let world = family.world(1);
        let client = family.client(&world);
        let opens = Payload::Tcp(flags::SYN, 1000, 0, b"early".to_vec());
        assert_eq!(client.sends(opens), passed(Reason::FastOpen));
        // The connection that the layer beneath made of it.
        assert_eq!(client.sends(syn()), passed(Reason::Beneath));
        assert_eq!(client.sends(ack()), passed(Reason::Beneath));
    }
}

#[test]
fn a_value_caught_half_written_is_passed_on() {
    for family in EVERY {
        let world = family.world(1);
        world.maps(|maps| {
            maps.frontends
                .values_mut()
                .for_each(|value| value.check ^= 1);
        });
        let client = family.client(&world);
        assert_eq!(client.sends(syn()), passed(Reason::Changed));
        assert_eq!(client.sends(syn()), passed(Reason::Beneath));
    }
}

#[test]
fn where_there_is_no_room_in_track_a_connection_does_not_come_about_and_datagrams_go_on() {
    for family in EVERY {
        let entries = if family.far { 4 } else { 2 };
        for room in 1..2 * entries {
            let world = family.world(1);
            let mut other = family.client(&world);
            other.from.set_port(1);
            if room >= entries {
                other.connects();
            }
            world.maps(|maps| maps.table(Table::Track).room = room);
            let client = family.client(&world);
            let endpoint = client.sends(syn()).unwrap();
            client.hears(endpoint, taken()).unwrap();
            let full = Outcome::dropped(Reason::TableFull);
            assert_eq!(client.sends(ack()), Err(full));
            assert_eq!(client.asks(), endpoint);
            assert_eq!(client.sends(datagram()), Ok(endpoint));
            assert_eq!(client.hears(endpoint, datagram()), Ok(()));
            // Nothing is left half, and once there is room it goes on.
            world.maps(|maps| {
                assert_eq!(maps.halves(), []);
                assert_eq!(usize::try_from(maps.flows), Ok(maps.dialled()));
                maps.table(Table::Track).room = 0;
            });
            assert_eq!(client.sends(ack()), Ok(endpoint));
        }
    }
}

#[test]
fn a_node_port_is_served_on_the_addresses_of_the_node_only() {
    for family in EVERY {
        for protocol in [TCP, UDP] {
            let world = family.world(1);
            world.serve_node_port(family.node, protocol, SET);
            if family.far {
                family.masquerade(&world);
            }
            let client = Client::new(&world, family.client, family.node);
            let payload = if protocol == TCP { syn() } else { datagram() };
            assert_eq!(client.sends(payload.clone()), Err(Outcome::UNTOUCHED));
            let address = address::from_ip(client.to.ip());
            world.maps(|maps| maps.node_addresses.push(NodeAddressKey { address }));
            assert_eq!(client.sends(payload), Ok(at(family.endpoints[0])));
        }
    }
}

#[test]
fn what_is_for_nobody_here_is_untouched_and_not_remembered() {
    for family in EVERY {
        let world = family.world(1);
        let mut client = family.client(&world);
        client.to.set_port(81);
        for payload in [syn(), data(), datagram()] {
            assert_eq!(client.sends(payload), Err(Outcome::UNTOUCHED));
        }
        assert_eq!(world.maps(|maps| maps.opening.keys()), []);
    }
}

#[test]
fn a_packet_that_is_too_short_to_be_changed_as_a_whole_is_dropped() {
    for family in EVERY {
        let world = family.world(1);
        let client = family.client(&world);
        let endpoint = client.asks();
        // The ports are there, the sum is not.
        let cut = |build: Build| {
            let mut packet = build.bytes();
            let ports = packet.0.len() - 12;
            packet.0.truncate(ports);
            packet
        };
        let not_changed = Outcome::dropped(Reason::NotChanged);
        assert_eq!(world.comes(&cut(client.build(datagram()))).0, not_changed);
        let reply = Build {
            from: endpoint,
            to: client.from,
            ..client.build(datagram())
        };
        assert_eq!(world.leaves(&cut(reply)).0, not_changed);
    }
}

#[test]
fn an_endpoint_that_is_a_frontend_is_translated_once_beneath() {
    for family in EVERY {
        for protocol in [TCP, UDP] {
            let payload = || if protocol == TCP { syn() } else { datagram() };
            let endpoint = at(family.endpoints[0]);
            let any = if endpoint.is_ipv4() {
                "0.0.0.0"
            } else {
                "[::]"
            };
            let (own, any) = (endpoint.to_string(), format!("{any}:{}", endpoint.port()));
            for dialled in [own, any] {
                let world = family.world(1);
                let mut key = world.serve(&dialled, protocol, SET + 5);
                if dialled.starts_with("0.0.0.0") || dialled.starts_with("[::]") {
                    world.maps(|maps| maps.frontends.remove(&key));
                    key.scope = SCOPE_NODE;
                    world.put(key, |_| {});
                    // On other addresses than the node's nobody answers.
                    let client = family.client(&world);
                    assert_eq!(client.sends(payload()), Ok(endpoint));
                    let address = address::from_ip(endpoint.ip());
                    world.maps(|maps| maps.node_addresses.push(NodeAddressKey { address }));
                }
                let mut client = family.client(&world);
                client.from.set_port(7);
                assert_eq!(client.sends(payload()), passed(Reason::Frontend));
                assert_eq!(client.sends(payload()), passed(Reason::Beneath));
                let inside = client.inside(endpoint, protocol);
                world.maps(|maps| assert_eq!(maps.opening.get(&inside), None));
            }
        }
    }
}
