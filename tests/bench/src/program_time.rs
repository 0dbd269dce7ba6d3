//! `program-time`: how long the kernel programs run, by the kernel's own account.
//!
//! Keeping that account takes time itself, part of which falls into the time that is shown: what
//! a program that does nothing is shown with, `empty program`, is the least that can be seen.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};

use super::{
    Session,
    clusters::Kind,
    figures::{Collected, Goal},
    kernel_time::{EmptyProgram, Program, Spent, Statistics},
    rig::{Dialled, Place, Rig},
    task::Task,
};

/// Length of a run of one case.
const SLICE: Duration = Duration::from_millis(60);
/// What one TCP connect may take, together with what `getpeername` needs.
const GOAL: Option<Goal> = Some(Goal::AtMost(400.0));

struct Case {
    name: &'static str,
    place: Place,
    task: Task,
    dialled: Dialled,
    goal: Option<Goal>,
}

const CASES: [Case; 11] = [
    case(
        "TCP connect",
        Place::Small,
        Task::Connect,
        Dialled::Few(Kind::Tcp),
        GOAL,
    ),
    case(
        "TCP connect, all services in turn",
        Place::Large,
        Task::Connect,
        Dialled::All(Kind::Tcp),
        GOAL,
    ),
    case(
        "TCP connect, IPv6",
        Place::Small,
        Task::Connect,
        Dialled::Few(Kind::Tcp6),
        GOAL,
    ),
    case(
        "TCP connect and getpeername",
        Place::Small,
        Task::ConnectAndAsk,
        Dialled::Few(Kind::Tcp),
        None,
    ),
    case(
        "TCP connect, no Service",
        Place::Small,
        Task::Connect,
        Dialled::Endpoints(Kind::Tcp),
        None,
    ),
    case(
        "UDP, connected socket",
        Place::Small,
        Task::Connected,
        Dialled::Few(Kind::Udp),
        None,
    ),
    case(
        "UDP, unconnected socket",
        Place::Small,
        Task::Unconnected,
        Dialled::Few(Kind::Udp),
        None,
    ),
    case(
        "UDP, new connected socket each",
        Place::Small,
        Task::NewConnected,
        Dialled::Few(Kind::Udp),
        None,
    ),
    case(
        "UDP, new unconnected socket each",
        Place::Small,
        Task::NewUnconnected,
        Dialled::Few(Kind::Udp),
        None,
    ),
    case(
        "UDP, new unconnected socket each, no Service",
        Place::Small,
        Task::NewUnconnected,
        Dialled::Endpoints(Kind::Udp),
        None,
    ),
    case(
        "empty program",
        Place::Empty,
        Task::Connect,
        Dialled::Endpoints(Kind::Tcp),
        None,
    ),
];

const fn case(
    name: &'static str,
    place: Place,
    task: Task,
    dialled: Dialled,
    goal: Option<Goal>,
) -> Case {
    Case {
        name,
        place,
        task,
        dialled,
        goal,
    }
}

/// Measures every program in every case where it runs.
pub(super) fn measure(session: &Session, rig: &mut Rig<'_>) -> Result<Collected> {
    let empty = EmptyProgram::attach(&rig.cgroups.empty)?;
    let small = programs(&rig.small.pins().path().join("links"))?;
    let large = programs(&rig.large.pins().path().join("links"))?;
    let empty = [("empty".to_owned(), empty.program()?)];
    // From here to the end of this function, for all programs of the host.
    let _statistics = Statistics::enable()?;
    let mut collected = Collected::default();
    for run in 0..session.runs {
        session.progress(&format!(
            "program-time: run {} of {}",
            run + 1,
            session.runs
        ));
        session.still_wanted()?;
        for case in &CASES {
            let watched: &[(String, Program)] = match case.place {
                Place::Small => &small,
                Place::Large => &large,
                Place::Empty | Place::Bare => &empty,
            };
            let before = spent(watched)?;
            let slice = rig.run(case.place, case.task, case.dialled, SLICE)?;
            let mut sum = 0.0;
            for ((name, program), before) in watched.iter().zip(before) {
                let spent = program.spent()?.since(before);
                sum += spent.per(slice.sent);
                // What runs once for many requests runs cold: no figure of its own.
                if spent.is_of_each(slice.sent)
                    && let Some(each) = spent.per_run()
                {
                    collected.add(case.name, name, "ns/run", each);
                }
            }
            ensure!(sum > 0.0, "no program ran in the case {}", case.name);
            collected.add_with_goal(case.name, "all programs", "ns/request", case.goal, sum);
        }
    }
    Ok(collected)
}

fn spent(watched: &[(String, Program)]) -> Result<Vec<Spent>> {
    watched.iter().map(|(_, program)| program.spent()).collect()
}

/// The programs behind the links in this directory, by the links' names.
fn programs(links: &Path) -> Result<Vec<(String, Program)>> {
    let entries = fs::read_dir(links)
        .with_context(|| format!("cannot list the links in {}", links.display()))?;
    let mut programs = Vec::new();
    for entry in entries {
        let path = entry.context("cannot list a link")?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        programs.push((name, Program::behind_link(&path)?));
    }
    programs.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(programs)
}
