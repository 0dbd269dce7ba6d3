//! The first inputs of this target: one of each kind of packet, in a journey that such packets have.

mod journey;

use proxy_common::{
    in_memory::{Build, Bytes, Hook, Payload},
    packet::{Version, parse::flags},
    track::reason::{Outcome, Reason},
};

use super::{
    fields::Layout,
    site::{FAMILIES, SOURCE_PORTS, at},
    step::Step,
};
use journey::{ACK, DONE, Journey, SYN, UNTOUCHED, taken, tcp, udp};

/// What a journey is called, and its steps.
pub(super) type Seed = (String, Vec<Step>);

/// Plays a journey.
type Played = fn(&mut Journey);

/// All of them.
pub(super) fn all() -> Vec<Seed> {
    let mut all = Vec::new();
    for (family, version) in FAMILIES.iter().zip(["v4", "v6"]) {
        for (name, journey) in JOURNEYS {
            let mut played = Journey::new(family);
            journey(&mut played);
            if !played.steps.is_empty() {
                all.push((format!("{name}-{version}"), played.steps));
            }
        }
    }
    all
}

/// What they are called, and what happens.
const JOURNEYS: [(&str, Played); 25] = [
    ("connection", connection),
    ("datagrams", datagrams),
    ("datagrams-without-sum", datagrams_without_sum),
    ("sum-that-comes-to-zero", sum_that_comes_to_zero),
    ("node-port", node_port),
    ("affinity", affinity),
    ("options", options),
    ("fragments", fragments),
    ("error-of-endpoint", error_of_endpoint),
    ("error-of-router", error_of_router),
    ("error-about-reply", error_about_reply),
    ("redirect", redirect),
    ("cut-off", cut_off),
    ("nobodys", nobodys),
    ("passed-on", passed_on),
    ("reset-and-again", reset_and_again),
    ("forged", forged),
    ("spoofed", spoofed),
    ("endpoints-change", endpoints_change),
    ("room-runs-out", room_runs_out),
    ("direct-datagrams", direct_datagrams),
    ("direct-connection", direct_connection),
    ("masqueraded", masqueraded),
    ("masqueraded-in-a-pod", masqueraded_in_a_pod),
    ("ports-run-out", ports_run_out),
];

fn connection(journey: &mut Journey) {
    journey.connects();
    journey.sends(tcp(ACK, "some data"), DONE);
    journey.does(Step::Pass(1));
    journey.hears(tcp(ACK, "other data"), DONE);
    // With the numbers that follow; the endpoint has the client's FIN by then.
    let end = |sequence| Payload::Tcp(ACK | flags::FIN, sequence, 5011, Vec::new());
    journey.sends(end(1010), DONE);
    journey.hears(end(1011), DONE);
    journey.does(Step::Pass(11));
    journey.does(Step::Sweep);
    journey.sends(tcp(ACK, ""), UNTOUCHED);
}

fn datagrams(journey: &mut Journey) {
    journey.asks();
    journey.does(Step::Pass(121));
    journey.hears(udp("late"), DONE);
    journey.sends(udp("question"), DONE);
    journey.does(Step::Pass(121));
    journey.does(Step::Sweep);
    journey.hears(udp("too late"), UNTOUCHED);
}

fn datagrams_without_sum(journey: &mut Journey) {
    // IPv6 demands one.
    if journey.version() == Version::V4 {
        let without = || Payload::UdpWithoutSum(b"odd".to_vec());
        journey.sends(without(), DONE);
        journey.hears(without(), DONE);
        journey.hears(without(), DONE);
        let about = journey.inside(without());
        let error = Journey::error(journey.endpoint.ip(), about, 88);
        journey.meets(Hook::Egress, error, DONE);
    }
}

/// One that would say that there is none: its complement is sent.
fn sum_that_comes_to_zero(journey: &mut Journey) {
    let version = journey.version();
    let zero = |mut build: Build| {
        build.payload = Payload::Udp(vec![0, 0]);
        let packet = build.bytes().0;
        let layout = Layout::of(version, &packet).unwrap();
        build.payload = Payload::Udp(packet[layout.outer.transport_sum()].to_vec());
        build
    };
    let request = zero(journey.request(udp("")));
    journey.meets(Hook::Ingress, request.bytes(), DONE);
    let reply = zero(journey.reply(udp("")));
    journey.meets(Hook::Egress, reply.bytes(), DONE);
    let about = journey.inside(request.payload);
    let error = Journey::error(journey.router().ip(), about, 88);
    journey.meets(Hook::Egress, error, DONE);
    let about = journey.inside(udp(""));
    let error = Journey::error(journey.router().ip(), zero(about), 88);
    journey.meets(Hook::Egress, error, DONE);
}

fn node_port(journey: &mut Journey) {
    journey.frontend = at(journey.family.node);
    journey.connects();
    journey.asks();
}

fn affinity(journey: &mut Journey) {
    journey.frontend = at(journey.family.sticky);
    for port in 40_000..40_003 {
        journey.client.set_port(port);
        journey.sends(tcp(SYN, ""), DONE);
        journey.does(Step::Answer(0x12));
    }
    journey.does(Step::Pass(101));
    journey.client.set_port(40_003);
    journey.sends(udp("question"), DONE);
}

fn options(journey: &mut Journey) {
    let first = Build {
        options: 8,
        ..journey.request(tcp(SYN, ""))
    };
    let passed = Outcome::passed(Reason::Options);
    journey.meets(Hook::Ingress, first.bytes(), passed);
    journey.client.set_port(40_001);
    journey.connects();
    for options in [8, 16] {
        let later = Build {
            options,
            ..journey.request(tcp(ACK, "data"))
        };
        journey.meets(Hook::Ingress, later.bytes(), DONE);
        let reply = Build {
            options,
            ..journey.reply(tcp(ACK, "data"))
        };
        journey.meets(Hook::Egress, reply.bytes(), DONE);
    }
}

fn fragments(journey: &mut Journey) {
    let long = || udp("a datagram that is in two fragments, of which one has the ports");
    journey.asks();
    let late = Outcome::dropped(Reason::Fragment);
    let journeys = [
        (Hook::Ingress, journey.request(long())),
        (Hook::Egress, journey.reply(long())),
    ];
    for (hook, build) in &journeys {
        let [first, later] = build.fragments(7);
        journey.meets(*hook, first, DONE);
        journey.meets(*hook, later, DONE);
        let [first, later] = build.fragments(8);
        journey.meets(*hook, later, UNTOUCHED);
        journey.meets(*hook, first, late);
    }
    journey.does(Step::Pass(61));
    for (hook, build) in journeys {
        let [_, later] = build.fragments(7);
        journey.meets(hook, later, UNTOUCHED);
    }
}

fn error_of_endpoint(journey: &mut Journey) {
    journey.sends(udp("question"), DONE);
    let about = journey.inside(udp("question"));
    let error = Journey::error(journey.endpoint.ip(), about, 88);
    journey.meets(Hook::Egress, error, DONE);
    journey.connects();
    let about = journey.inside(tcp(ACK, "data"));
    let error = Journey::error(journey.endpoint.ip(), about, 88);
    journey.meets(Hook::Egress, error, DONE);
    journey.does(Step::Answer(0));
}

fn error_of_router(journey: &mut Journey) {
    journey.connects();
    let about = journey.inside(tcp(ACK, "data"));
    let with_options = Build {
        options: 8,
        ..about.clone()
    };
    // As little as an error must quote, and an odd number of bytes.
    let ports = if journey.version() == Version::V4 {
        28
    } else {
        48
    };
    for (about, quoted) in [(about.clone(), ports), (about, 65), (with_options, 88)] {
        let error = Journey::error(journey.router().ip(), about, quoted);
        journey.meets(Hook::Egress, error, DONE);
    }
}

fn error_about_reply(journey: &mut Journey) {
    journey.asks();
    let about = Build {
        from: journey.frontend,
        ..journey.reply(udp("answer"))
    };
    for from in [journey.client, journey.router()] {
        let error = Journey::error(from.ip(), about.clone(), 88);
        journey.meets(Hook::Ingress, error, DONE);
    }
}

fn redirect(journey: &mut Journey) {
    if journey.version() == Version::V4 {
        journey.connects();
        let about = journey.inside(tcp(ACK, ""));
        let redirect = Journey::error_of(5, journey.router().ip(), about, 88);
        journey.meets(Hook::Egress, redirect, Outcome::dropped(Reason::Redirect));
    }
}

fn cut_off(journey: &mut Journey) {
    journey.connects();
    journey.asks();
    for payload in [tcp(ACK, ""), udp("")] {
        let whole = journey.request(payload);
        let header = if journey.version() == Version::V4 {
            20
        } else {
            40
        };
        let of_sum = if matches!(whole.payload, Payload::Udp(_)) {
            4
        } else {
            16
        };
        for (length, expected) in [
            (header - 1, UNTOUCHED),
            (header + 3, UNTOUCHED),
            (header + of_sum, Outcome::dropped(Reason::NotChanged)),
        ] {
            let mut packet = whole.bytes();
            packet.0.truncate(length);
            journey.meets(Hook::Ingress, packet, expected);
        }
    }
}

/// For nobody here, of another protocol, of the other version, damaged, or nothing at all.
fn nobodys(journey: &mut Journey) {
    let packet = journey.request(tcp(SYN, "")).bytes().0;
    let protocol = if journey.version() == Version::V4 {
        9
    } else {
        6
    };
    for (at, byte) in [
        (0, 0x12),
        (0, packet[0] ^ 0x20),
        (protocol, 132),
        (protocol, 51),
    ] {
        let mut packet = packet.clone();
        packet[at] = byte;
        journey.meets(Hook::Ingress, Bytes(packet), UNTOUCHED);
    }
    journey.meets(Hook::Egress, Bytes(packet), UNTOUCHED);
    journey.meets(Hook::Ingress, Bytes(Vec::new()), UNTOUCHED);
    journey.frontend.set_port(79);
    journey.sends(udp("question"), UNTOUCHED);
}

fn passed_on(journey: &mut Journey) {
    journey.does(Step::Lead(0));
    journey.sends(udp("question"), Outcome::passed(Reason::NoEndpoint));
    journey.does(Step::Lead(7));
    journey.sends(udp("question"), Outcome::passed(Reason::Beneath));
    journey.sends(tcp(SYN, "early"), Outcome::passed(Reason::FastOpen));
    journey.client.set_port(40_001);
    journey.does(Step::Leaving);
    journey.sends(tcp(SYN, ""), Outcome::passed(Reason::Leaving));
    journey.client = at(journey.family.node);
    journey.does(Step::Leaving);
    journey.sends(tcp(SYN, ""), Outcome::passed(Reason::LocalSource));
}

fn reset_and_again(journey: &mut Journey) {
    journey.connects();
    journey.hears(tcp(flags::RST | ACK, ""), DONE);
    journey.connects();
    journey.sends(tcp(flags::RST, ""), DONE);
    journey.does(Step::Pass(6));
    journey.does(Step::Sweep);
}

/// The numbers of a connection are not known to who sends this, but for the last.
fn forged(journey: &mut Journey) {
    journey.connects();
    for seen in [flags::RST, ACK | flags::FIN] {
        for sequence in [77, 1001 + (1 << 20), 1002] {
            journey.sends(Payload::Tcp(seen, sequence, 5001, Vec::new()), DONE);
        }
    }
    journey.does(Step::Lead(0));
    journey.sends(tcp(SYN, ""), DONE);
    journey.hears(tcp(flags::RST | ACK, ""), DONE);
    journey.sends(tcp(SYN, ""), Outcome::passed(Reason::NoEndpoint));
}

/// Nor those of an endpoint, until it refuses the next connection, has left, and is silent.
fn spoofed(journey: &mut Journey) {
    journey.connects();
    for seen in [flags::RST, flags::RST | ACK, ACK | flags::FIN, ACK] {
        journey.hears(Payload::Tcp(seen, 77, 77, Vec::new()), DONE);
    }
    journey.does(Step::Lead(0));
    journey.sends(tcp(SYN, ""), DONE);
    journey.hears(Payload::Tcp(flags::RST | ACK, 1001, 0, Vec::new()), DONE);
    journey.sends(tcp(SYN, ""), DONE);
    journey.does(Step::Pass(6));
    journey.sends(tcp(SYN, ""), Outcome::passed(Reason::NoEndpoint));
}

fn endpoints_change(journey: &mut Journey) {
    journey.connects();
    journey.asks();
    journey.does(Step::Lead(0));
    journey.sends(tcp(ACK, "data"), DONE);
    journey.hears(tcp(ACK, "data"), DONE);
    journey.sends(udp("question"), Outcome::passed(Reason::NoEndpoint));
    journey.does(Step::Lead(2));
    journey.connects();
    journey.does(Step::Lead(5));
    journey.sends(tcp(SYN, ""), DONE);
    journey.does(Step::Again { at: 21, change: 1 });
}

/// Several openings first: a flow that began is not refused before the end.
fn room_runs_out(journey: &mut Journey) {
    for port in 40_000..40_004 {
        journey.client.set_port(port);
        journey.sends(tcp(SYN, ""), DONE);
        journey.hears(taken(), DONE);
    }
    for port in 40_000..40_003 {
        journey.client.set_port(port);
        journey.sends(tcp(ACK, ""), DONE);
    }
    journey.client.set_port(40_003);
    journey.sends(tcp(ACK, ""), Outcome::dropped(Reason::TableFull));
    journey.client.set_port(40_004);
    journey.sends(tcp(SYN, ""), Outcome::passed(Reason::TableFull));
}

fn direct_datagrams(journey: &mut Journey) {
    journey.asks();
    let direct = journey.inside(udp("direct")).bytes();
    journey.meets(Hook::Ingress, direct, Outcome::passed(Reason::Direct));
    journey.hears(udp("answer"), UNTOUCHED);
    journey.does(Step::Lead(7));
    let frontend = journey.request(udp("question")).bytes();
    journey.does(Step::Packet(Hook::Ingress, journey.version(), frontend.0));
}

fn direct_connection(journey: &mut Journey) {
    journey.sends(tcp(SYN, ""), DONE);
    journey.does(Step::Pass(1));
    journey.hears(tcp(ACK, ""), Outcome::passed(Reason::Direct));
    journey.sends(tcp(SYN, ""), Outcome::passed(Reason::Beneath));
}

/// There and back, and on, with what each side sends.
fn goes_around(journey: &mut Journey, to_pod: bool) {
    journey.frontend = at(journey.family.masqueraded);
    for (begins, answers) in [(tcp(SYN, ""), [0x12, 0x10]), (udp("question"), [0, 0])] {
        journey.sends(begins, DONE);
        for said in answers {
            journey.becomes(Step::On { to_pod }, DONE);
            journey.becomes(Step::Answer(said), DONE);
            journey.becomes(Step::On { to_pod: false }, DONE);
            journey.becomes(Step::Answer(0x10), DONE);
        }
        journey.becomes(Step::On { to_pod }, DONE);
        // Room for the next one.
        journey.does(Step::Pass(10_000));
        journey.does(Step::Sweep);
    }
    journey.sends(udp("question"), DONE);
    journey.becomes(Step::On { to_pod }, DONE);
    // By another frontend, and directly.
    journey.frontend = at(journey.family.frontend);
    let packet = journey.request(udp("question")).bytes();
    journey.does(Step::Packet(Hook::Ingress, journey.version(), packet.0));
    let direct = journey.inside(udp("direct")).bytes();
    journey.does(Step::Packet(Hook::Ingress, journey.version(), direct.0));
    journey.does(Step::On { to_pod });
}

fn masqueraded(journey: &mut Journey) {
    goes_around(journey, false);
}

fn masqueraded_in_a_pod(journey: &mut Journey) {
    goes_around(journey, true);
}

/// Clients have all ports; then this node itself sends from each.
fn ports_run_out(journey: &mut Journey) {
    journey.frontend = at(journey.family.masqueraded);
    journey.does(Step::Lead(1));
    for port in 41_000..41_006 {
        journey.client.set_port(port);
        let packet = journey.request(udp("question")).bytes();
        journey.does(Step::Packet(Hook::Ingress, journey.version(), packet.0));
        journey.does(Step::On { to_pod: false });
        journey.does(Step::Answer(0));
    }
    for hook in [Hook::Egress, Hook::ToPod] {
        for port in SOURCE_PORTS[0]..=SOURCE_PORTS[1] {
            journey.client = at(journey.family.own);
            journey.client.set_port(port);
            let own = journey.inside(udp("own")).bytes();
            journey.does(Step::Packet(hook, journey.version(), own.0));
            journey.does(Step::Answer(0));
        }
    }
}
