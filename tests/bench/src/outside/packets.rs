//! `packet-time`: how long the programs on devices take for one packet, which the kernel has them
//! look at again and again. Two flows that lead to each other let every run meet a packet of an open
//! one: what the first makes of it is the second's.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use proxy_common::socket::{TCP, UDP};
use proxy_harness::{
    bpf::program::Program,
    packets::{ENDS, Ends, Flows, Programs, packet},
};

use super::{
    super::{
        Session,
        figures::{Collected, Goal},
        task::Task,
    },
    place::Place,
    way::{self, Case, Kind, Way},
};

/// Packets of one measurement.
const TIMES: u32 = 200_000;
/// Both programs, each for a packet of an open flow.
const BOTH: Option<Goal> = Some(Goal::AtMost(250.0));

/// Measures each kind of packet.
pub(in super::super) fn measure(session: &Session) -> Result<Collected> {
    let mut collected = Collected::default();
    session.progress("packet-time");
    let worlds = way::worlds()?;
    let (kind, world) = worlds
        .iter()
        .find(|(kind, _)| *kind == Kind::Alone)
        .context("there is no world for the programs alone")?;
    let mut way = Way::start(*kind, world, Case::small(Place::Here))?;
    // Leaves an open flow of the Service, whose endpoint the measured ones have.
    way.slice(Task::Connected, Duration::from_millis(20))?;
    let pins = way.pins().context("there is no agent")?;
    let Some(programs) = Programs::behind(pins)? else {
        return Ok(collected);
    };
    Flows::of(pins)?.enter()?;
    let nothing = Program::passing()?;
    for _ in 0..session.runs {
        let ran = nothing.run(&packet(ENDS[0].client, ENDS[0].stranger, TCP), TIMES)?;
        let time = f64::from(ran.nanoseconds);
        collected.add("a program that does nothing", "packet", "ns", time);
        for (name, ends) in ["IPv4", "IPv6"].into_iter().zip(&ENDS) {
            for (protocol, called) in [(TCP, "TCP"), (UDP, "UDP")] {
                session.still_wanted()?;
                let case = format!("{called} over {name}");
                open_flow(&programs, ends, protocol, &case, &mut collected)?;
                no_flow(&programs, ends, protocol, &case, &mut collected)?;
            }
        }
    }
    Ok(collected)
}

fn open_flow(
    programs: &Programs,
    ends: &Ends,
    protocol: u8,
    case: &str,
    collected: &mut Collected,
) -> Result<()> {
    let request = packet(ends.client, ends.frontend, protocol);
    let reply = packet(ends.endpoint, ends.client, protocol);
    let mut both = 0.0;
    for (program, packet, name) in [
        (&programs.incoming, request, "request"),
        (&programs.outgoing, reply, "reply"),
    ] {
        let once = program.run(&packet, 1)?;
        ensure!(once.packet != packet, "{case}: a {name} is not translated");
        let again = program.run(&packet, TIMES)?;
        ensure!(again.packet == packet, "{case}: a {name} is damaged");
        let time = f64::from(again.nanoseconds);
        collected.add(case, name, "ns", time);
        both += time;
    }
    collected.add_with_goal(case, "request and reply", "ns", BOTH, both);
    Ok(())
}

/// A packet that is nobody's: what traffic pays that no Service is for.
fn no_flow(
    programs: &Programs,
    ends: &Ends,
    protocol: u8,
    case: &str,
    collected: &mut Collected,
) -> Result<()> {
    for (program, from, to, name) in [
        (
            &programs.incoming,
            ends.client,
            ends.stranger,
            "no Service, in",
        ),
        (
            &programs.outgoing,
            ends.stranger,
            ends.client,
            "no Service, out",
        ),
    ] {
        let packet = packet(from, to, protocol);
        let ran = program.run(&packet, TIMES)?;
        ensure!(ran.packet == packet, "{case}: {name}: it is translated");
        collected.add(case, name, "ns", f64::from(ran.nanoseconds));
    }
    Ok(())
}
