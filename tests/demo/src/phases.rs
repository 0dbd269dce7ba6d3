//! The four things the demo proves, one after the other. Each is an error if it did not happen.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};

use super::{
    Show,
    cluster::{self, ALL, EMPTY, EMPTY_GETS_AN_ENDPOINT, FIRST, REPLACEMENT, STREAMS, WEB},
    screen::{self, Tone, number},
    stage::{CLUSTER, Stage},
    traffic::as_float,
};

/// Answers per endpoint before shares are judged: with so many, chance alone moves a share by a
/// tenth.
const ENOUGH: u64 = 200;
/// How far a share may be from an equal one.
const UNEVEN: f64 = 0.5;
/// How often the agent is killed.
const KILLS: u32 = 3;

/// One thing to prove.
struct Phase {
    title: &'static str,
    play: fn(&mut Show, &mut Stage<'_>, Duration) -> Result<()>,
    /// Its part of the time.
    share: f64,
    /// The streams it is about.
    streams: &'static [usize],
}

const PHASES: [Phase; 4] = [
    Phase {
        title: "Requests to ClusterIPs reach every endpoint",
        play: spread,
        share: 0.35,
        streams: &ALL,
    },
    Phase {
        title: "A Service without endpoints is refused at once",
        play: refused,
        share: 0.05,
        streams: &[EMPTY],
    },
    Phase {
        title: "A pod is replaced under traffic",
        play: replaced,
        share: 0.3,
        streams: &WEB,
    },
    Phase {
        title: "The agent is killed and restarted under traffic",
        play: restarted,
        share: 0.3,
        streams: &ALL,
    },
];

/// Plays all phases; together they take about `length`.
pub(super) fn all(show: &mut Show, stage: &mut Stage<'_>, length: Duration) -> Result<()> {
    for (index, phase) in PHASES.iter().enumerate() {
        show.screen.gap()?;
        show.screen
            .say(Tone::Heading, &format!("{} {}", index + 1, phase.title))?;
        (phase.play)(show, stage, length.mul_f64(phase.share))?;
        stage.traffic.poll()?;
        stage.no_failures()?;
        // On a terminal the live table is there all the time, and stays once: at the end.
        if !show.screen.is_live() || index + 1 == PHASES.len() {
            show.screen.gap()?;
            show.screen
                .say(Tone::Plain, &screen::table(&stage.traffic, phase.streams))?;
        }
    }
    Ok(())
}

/// IPv4, IPv6, TCP, UDP; all endpoints, and only they.
fn spread(show: &mut Show, stage: &mut Stage<'_>, length: Duration) -> Result<()> {
    show.watch(
        stage,
        "requests to every ClusterIP, over IPv4 and IPv6, HTTP, TCP and UDP",
        length,
    )?;
    let mut endpoints = 0;
    let mut furthest: f64 = 0.0;
    for (index, stream) in STREAMS
        .iter()
        .enumerate()
        .filter(|(index, _)| *index != EMPTY)
    {
        let expected: BTreeSet<SocketAddr> = stream.endpoints().into_iter().collect();
        let wanted = ENOUGH * expected.len() as u64;
        let so_far = stage.traffic.report(index).finished();
        if so_far < wanted {
            stage.traffic.wait(index, wanted - so_far)?;
        }
        let report = stage.traffic.report(index);
        let what = format!("{} at {}", stream.service, stream.to());
        let reached: BTreeSet<SocketAddr> = report.answers.keys().copied().collect();
        ensure_that(reached == expected, || {
            format!("{what} reached {reached:?} and should reach {expected:?}")
        })?;
        endpoints += expected.len();
        let fair = as_float(report.answered) / as_float(expected.len() as u64);
        for (endpoint, count) in &report.answers {
            let off = (as_float(*count) / fair - 1.0).abs();
            ensure_that(off <= UNEVEN, || {
                format!(
                    "{endpoint} got {count} of {} requests to {what}",
                    report.answered
                )
            })?;
            furthest = furthest.max(off);
        }
    }
    stage.no_failures()?;
    let answered = number(stage.traffic.answered());
    show.proven(&format!(
        "{} frontends over IPv4 and IPv6 reach {endpoints} endpoints and no others; the share of \
         each is within {:.0} % of an equal one",
        STREAMS.len() - 1,
        100.0 * furthest
    ))?;
    show.proven(&format!(
        "{answered} requests answered, none failed; every socket shows the ClusterIP as its peer"
    ))
}

/// `connect` says so, instead of a timeout.
fn refused(show: &mut Show, stage: &mut Stage<'_>, length: Duration) -> Result<()> {
    const TRIES: u32 = 20;
    let stream = &STREAMS[EMPTY];
    let refusal = stage.agent.refusal()?.to_owned();
    let mut slowest = Duration::ZERO;
    for _ in 0..TRIES {
        let began = Instant::now();
        let attempts = stage.ask(stream.transport, stream.to())?;
        slowest = slowest.max(began.elapsed());
        for attempt in attempts {
            ensure_that(attempt.errno() == Some(&refusal), || {
                format!(
                    "{} at {} gave {attempt:?}, not {refusal}",
                    stream.service,
                    stream.to()
                )
            })?;
        }
    }
    show.watch(stage, "requests to shop/empty are refused", length)?;
    stage.traffic.wait(EMPTY, 1)?;
    ensure_that(stage.traffic.report(EMPTY).answered == 0, || {
        format!("somebody answers for {}", stream.service)
    })?;
    show.proven(&format!(
        "connect to {} ({}) gives {refusal}: {} times in a row, the slowest after {:.1} ms",
        stream.service,
        stream.to(),
        TRIES,
        slowest.as_secs_f64() * 1000.0
    ))
}

/// A rolling update of one pod: the new one is ready, the old one drains, then goes.
fn replaced(show: &mut Show, stage: &mut Stage<'_>, length: Duration) -> Result<()> {
    stage.add_pod(&REPLACEMENT)?;
    let count = |stage: &Stage<'_>, stream: usize, endpoint: &SocketAddr| {
        let answers = &stage.traffic.report(stream).answers;
        answers.get(endpoint).copied().unwrap_or_default()
    };
    let began = Instant::now();
    stage
        .agent
        .apply(CLUSTER, &cluster::old_pod_terminating()?)?;
    let mut first = [Duration::ZERO; WEB.len()];
    for (stream, first) in WEB.into_iter().zip(&mut first) {
        let new = cluster::replacement(stream).new;
        while !stage.traffic.wait(stream, 1)?.answers.contains_key(&new) {
            show.still_wanted()?;
            stage.no_failures()?;
            ensure_that(began.elapsed() < proxy_harness::agent::LIMIT, || {
                format!("{new} got no request")
            })?;
        }
        *first = began.elapsed();
    }
    stage.agent.wait_until_synced()?;
    // What is under way at this moment may be meant for the old pod; nothing after it is.
    for stream in WEB {
        stage.traffic.wait(stream, 1)?;
    }
    let drained = WEB.map(|stream| count(stage, stream, &cluster::replacement(stream).old));
    let status = "shop/web: the pod on node-b drains, its successor serves";
    show.watch(stage, status, length / 2)?;
    for (stream, drained) in WEB.into_iter().zip(drained) {
        let old = cluster::replacement(stream).old;
        let now = count(stage, stream, &old);
        ensure_that(now == drained, || {
            format!(
                "{old} got {} requests after it had left the set",
                now - drained
            )
        })?;
    }

    // For this node nothing changes with that: the old pod has left the set already.
    stage.agent.apply(CLUSTER, &cluster::old_pod_gone()?)?;
    stage.remove_pod("web-b")?;
    show.watch(stage, "shop/web: the old pod on node-b is gone", length / 2)?;
    for (stream, first) in WEB.into_iter().zip(first) {
        let replaced = cluster::replacement(stream);
        show.proven(&format!(
            "{}: first request {} ms after the slice was written, {} so far; {}: {} before, none \
             after",
            replaced.new,
            first.as_millis(),
            number(count(stage, stream, &replaced.new)),
            replaced.old,
            number(count(stage, stream, &replaced.old)),
        ))?;
    }
    stage.no_failures()?;
    show.proven("not one request failed while one pod took the place of the other")
}

/// SIGKILL, a change while nobody looks, and a restart that takes over what is in the kernel.
fn restarted(show: &mut Show, stage: &mut Stage<'_>, length: Duration) -> Result<()> {
    stage.add_pod(&FIRST)?;
    let part = length / (2 * KILLS);
    let (mut alone, mut took) = (0, Vec::new());
    for kill in 0..KILLS {
        stage.agent.kill()?;
        let before = stage.traffic.answered();
        if kill == 0 {
            stage
                .agent
                .apply("shop-empty.yaml", EMPTY_GETS_AN_ENDPOINT)?;
        }
        show.watch(stage, "no agent: it was killed with SIGKILL", part)?;
        stage.traffic.wait(0, 20)?;
        stage.traffic.poll()?;
        alone += stage.traffic.answered() - before;
        if kill == 0 {
            ensure_that(stage.traffic.report(EMPTY).answered == 0, || {
                "shop/empty was answered with no agent to program it".to_owned()
            })?;
        }
        let began = Instant::now();
        stage.agent.launch()?;
        took.push(began.elapsed().as_millis());
        ensure_that(stage.agent.serving()?.flag("adopted") == Some(true), || {
            "the restarted agent did not take over the maps in the kernel".to_owned()
        })?;
        show.watch(stage, "the restarted agent serves", part)?;
    }
    // What was under way when the first restarted agent began to serve has long been counted.
    stage.traffic.wait(EMPTY, 1)?;
    let refused = stage.traffic.refused(EMPTY);
    let answered = stage.traffic.wait(EMPTY, 20)?.answered;
    ensure_that(
        answered > 0 && stage.traffic.refused(EMPTY) == refused,
        || "shop/empty got an endpoint while no agent ran, and is still refused".to_owned(),
    )?;
    stage.no_failures()?;
    let slowest = took
        .iter()
        .max()
        .context("the agent was killed at least once")?;
    show.proven(&format!(
        "killed {KILLS} times; {} requests answered while there was no agent, none failed",
        number(alone)
    ))?;
    show.proven(&format!(
        "each time it took over maps and programs in place and served again, the slowest after \
         {slowest} ms"
    ))?;
    show.proven(&format!(
        "shop/empty got its first endpoint while there was no agent: no longer refused, {} \
         requests answered by {}",
        number(answered),
        FIRST.listen()[0].address
    ))
}

fn ensure_that(holds: bool, otherwise: impl FnOnce() -> String) -> Result<()> {
    ensure!(holds, "{}", otherwise());
    Ok(())
}
