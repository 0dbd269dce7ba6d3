//! Two CPUs handle packets of one flow at the same time: whatever the order of their operations, both
//! packets go the flow's way, and nothing of it is left half.

use std::{net::SocketAddr, vec::Vec};

use super::{
    Client, EVERY, Family, World,
    cpu::Cpu,
    journey::{Went, ack, data, fin, fin_too, receiver, syn, taken, version},
    maps::Maps,
};
use crate::{
    in_memory::{
        Build, Bytes, Hook, Payload,
        interleaved::{Shared, every_order},
        programs::sweeps,
    },
    socket::TCP,
    track::{
        ConnectionKey, Connections as _, Table,
        reason::{Outcome, Reason},
    },
};

/// What a CPU does.
#[derive(Clone)]
pub(super) enum Act {
    Comes(Bytes),
    Leaves(Bytes),
    Sweeps(ConnectionKey),
    /// A socket of this node opens, that gets what the key says.
    Opens(ConnectionKey),
    /// The kernel needs the room of an entry of OPENING.
    Evicts(ConnectionKey),
    /// One after the other; what became of the last one counts.
    Each(Vec<Self>),
}

/// What became of it.
pub(super) type Became = (Outcome, Option<Bytes>);

pub(super) fn act(maps: &Shared<Maps>, cpu: usize, act: &Act) -> Became {
    reached(&Cpu::new(maps, Some(cpu)), act)
}

fn reached(tables: &Cpu<'_>, act: &Act) -> Became {
    match act {
        Act::Comes(packet) => meets(Hook::Ingress, tables, packet),
        Act::Leaves(packet) => meets(Hook::Egress, tables, packet),
        Act::Sweeps(key) => {
            sweeps(tables, *key);
            (Outcome::UNTOUCHED, None)
        }
        Act::Opens(key) => {
            tables.opens(*key);
            (Outcome::UNTOUCHED, None)
        }
        Act::Evicts(key) => {
            tables.remove(Table::Opening, key);
            (Outcome::UNTOUCHED, None)
        }
        Act::Each(acts) => {
            let became = acts.iter().map(|act| reached(tables, act));
            became.last().unwrap()
        }
    }
}

fn meets(hook: Hook, tables: &Cpu<'_>, packet: &Bytes) -> Became {
    let (outcome, packet) = hook.meets(tables, version(packet), packet);
    (outcome, Some(packet))
}

/// Where a packet that came in went.
pub(super) fn went((outcome, packet): &Became) -> Went {
    if *outcome == Outcome::TRANSLATED {
        Ok(receiver(packet.as_ref().unwrap(), 0))
    } else {
        Err(*outcome)
    }
}

/// Runs two acts in every order. Entries keep their memory, so that what is written to one that is
/// gone meanwhile is lost: what else it may meet is looked at where there are fewer orders.
pub(super) fn in_every_order(
    world: World,
    acts: &[Act; 2],
    check: impl Fn(&World, &[Became]),
) -> usize {
    let mut maps = world.into_maps();
    maps.track.recycles = false;
    maps.opening.recycles = false;
    in_every_order_of(&maps, acts, check)
}

fn in_every_order_of(maps: &Maps, acts: &[Act; 2], check: impl Fn(&World, &[Became])) -> usize {
    let start = || maps.clone();
    let program = |maps: &Shared<Maps>, cpu: usize| act(maps, cpu, &acts[cpu]);
    every_order(2, start, program, |maps, became, order| {
        let guard = Says(order);
        check(&World::of(maps), &became);
        core::mem::forget(guard);
    })
}

/// Says in which order a check failed.
struct Says<'a>(&'a crate::in_memory::interleaved::Order);

impl Drop for Says<'_> {
    fn drop(&mut self) {
        std::eprintln!("in the order {:?}", self.0);
    }
}

pub(super) fn comes(client: &Client<'_>, payload: Payload) -> Act {
    Act::Comes(client.build(payload).bytes())
}

pub(super) fn leaves(client: &Client<'_>, endpoint: SocketAddr, payload: Payload) -> Act {
    let reply = Build {
        from: endpoint,
        to: client.from,
        options: 0,
        payload,
    };
    Act::Leaves(reply.bytes())
}

/// What is left after a second, and a packet each way, is whole.
pub(super) fn settles(client: &Client<'_>, endpoint: SocketAddr, payload: &Payload) {
    let world = client.world;
    world.pass(1);
    assert_eq!(client.sends(payload.clone()), Ok(endpoint));
    assert_eq!(client.hears(endpoint, payload.clone()), Ok(()));
    world.maps(|maps| {
        assert_eq!(maps.halves(), []);
        assert_eq!(usize::try_from(maps.flows), Ok(maps.dialled()));
    });
}

/// The client of these maps.
pub(super) fn of<'a>(family: &Family, world: &'a World) -> Client<'a> {
    family.client(world)
}

/// Both copies of a first packet go to one endpoint, and the connection comes about.
fn copies_agree(world: World) -> usize {
    let family = EVERY[0];
    let copy = comes(&family.client(&world), syn());
    in_every_order(world, &[copy.clone(), copy], |world, became| {
        one_endpoint(&of(&family, world), became);
    })
}

fn one_endpoint(client: &Client<'_>, became: &[Became]) {
    let endpoint = went(&became[0]).unwrap();
    assert_eq!(went(&became[1]), Ok(endpoint));
    client.hears(endpoint, taken()).unwrap();
    assert_eq!(client.sends(ack()), Ok(endpoint));
    assert_eq!(client.hears(endpoint, data()), Ok(()));
    settles(client, endpoint, &data());
    assert_eq!(client.world.maps(|maps| maps.flows), 1);
}

#[test]
fn two_copies_of_a_first_packet_go_to_one_endpoint() {
    let orders = copies_agree(EVERY[0].world(3));
    assert!(orders > 5, "{orders}");
}

#[test]
fn two_copies_go_to_one_endpoint_also_where_half_of_the_flow_was_evicted() {
    for dialled in [true, false] {
        let world = EVERY[0].world(3);
        let client = EVERY[0].client(&world);
        let endpoint = client.sends(syn()).unwrap();
        let evicted = if dialled {
            client.key(TCP)
        } else {
            client.inside(endpoint, TCP)
        };
        world.maps(|maps| maps.opening.remove(&evicted));
        copies_agree(world);
    }
}

#[test]
fn two_copies_go_to_one_endpoint_also_where_their_connection_was_closed_before() {
    let world = EVERY[0].world(3);
    let client = EVERY[0].client(&world);
    let endpoint = client.connects();
    client.sends(fin()).unwrap();
    client.hears(endpoint, fin_too()).unwrap();
    copies_agree(world);
}

#[test]
fn two_copies_go_to_one_endpoint_also_where_their_endpoint_was_removed() {
    let world = EVERY[0].world(3);
    let client = EVERY[0].client(&world);
    let endpoint = client.sends(syn()).unwrap();
    EVERY[0].lead_without(&world, 3, endpoint);
    copies_agree(world);
}

#[test]
fn two_copies_go_to_one_endpoint_with_affinity() {
    let world = EVERY[0].world(3);
    world.maps(|maps| {
        for (key, value) in &mut maps.frontends {
            value.affinity = 10;
            *value = value.sealed(key);
        }
    });
    copies_agree(world);
}

#[test]
fn two_copies_go_to_one_endpoint_also_where_memory_is_given_to_other_entries() {
    let family = EVERY[0];
    let world = family.world(3);
    let client = family.client(&world);
    let endpoint = client.sends(syn()).unwrap();
    let copy = comes(&client, syn());
    world.maps(|maps| maps.opening.remove(&client.inside(endpoint, TCP)));
    in_every_order_of(
        &world.into_maps(),
        &[copy.clone(), copy],
        |world, became| {
            one_endpoint(&of(&family, world), became);
        },
    );
}

#[test]
fn what_is_left_to_the_layer_beneath_meanwhile_takes_no_endpoints_place() {
    let family = EVERY[0];
    let world = family.world(1);
    let client = family.client(&world);
    let with_options = Build {
        options: 8,
        ..client.build(syn())
    };
    let acts = [Act::Comes(with_options.bytes()), comes(&client, syn())];
    in_every_order(world, &acts, |world, became| {
        let client = of(&family, world);
        let endpoint = super::journey::at(family.endpoints[0]);
        let beneath = Err(Outcome::passed(Reason::Beneath));
        assert!([Ok(endpoint), beneath].contains(&went(&became[1])));
        let inside = client.inside(endpoint, TCP);
        let is_beneath = client.sends(syn()).is_err();
        let has_place = world.maps(|maps| maps.opening.get(&inside).is_some());
        assert_ne!(is_beneath, has_place);
    });
}

#[test]
fn two_copies_go_to_one_endpoint_also_where_endpoints_join_between_them() {
    for port in 40000..40008 {
        let family = EVERY[0];
        let world = family.world(1);
        let mut client = family.client(&world);
        client.from.set_port(port);
        let before = world.maps(|maps| maps.sets.clone());
        family.lead(&world, &[2, 1, 0]);
        world.maps(|maps| maps.sets_before = Some(before));
        let copy = comes(&client, syn());
        in_every_order(world, &[copy.clone(), copy], |world, became| {
            let mut client = of(&family, world);
            client.from.set_port(port);
            // Nothing is left of an endpoint that one of them chose for nothing.
            assert_eq!(world.maps(|maps| maps.opening.keys().len()), 2);
            one_endpoint(&client, became);
        });
    }
}
