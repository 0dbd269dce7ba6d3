//! Scenarios one after the other against the same few agents, where it is their start that takes the
//! time: an emulated machine spends seconds on loading the programs.
//!
//! A node has one agent, and plays one scenario at a time; between two of them the cluster is empty,
//! and the pods are gone. Each lives on a thread of its own, which ends with the agent.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, JoinHandle},
};

use anyhow::{Context as _, Result, anyhow, bail};
use proxy_model::NodeState;

use super::{
    Scenario,
    subject::{Subject, Under},
    traffic::{Ground, play},
};
use crate::world::World;

/// How many nodes wait for another scenario. Nearly all scenarios are content with one of two kinds.
const IDLE: usize = 4;

/// Nodes, each as some scenarios need it. Ended when dropped.
#[derive(Debug, Default)]
pub struct Batch {
    /// Those that wait, in the order in which they were given back.
    idle: Mutex<VecDeque<(Ground, Node)>>,
}

/// A node with an agent, on its thread.
#[derive(Debug)]
struct Node {
    jobs: Sender<Job>,
    thread: JoinHandle<Result<()>>,
}

struct Job {
    scenario: Scenario,
    states: Vec<NodeState>,
    played: Sender<Result<()>>,
}

/// Plays a scenario on a node that others were played on before, if one waits that is as it needs it.
/// An agent under which a scenario failed plays no other.
pub fn run(scenario: &Scenario, states: &[NodeState], batch: &Batch) -> Result<()> {
    let ground = Ground::of(scenario)?;
    let node = batch
        .take(&ground)
        .unwrap_or_else(|| Node::new(ground.clone()));
    let node = node.play(scenario, states)?;
    match batch.give_back(ground, node) {
        Some(node) => node.end(),
        None => Ok(()),
    }
}

impl Batch {
    fn take(&self, ground: &Ground) -> Option<Node> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let at = idle.iter().position(|(like, _)| like == ground)?;
        idle.remove(at).map(|(_, node)| node)
    }

    /// One that waited long enough is returned for it, if there are too many.
    fn give_back(&self, ground: Ground, node: Node) -> Option<Node> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.push_back((ground, node));
        let too_many = idle.len() > IDLE;
        too_many.then(|| idle.pop_front())?.map(|(_, node)| node)
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let idle = self.idle.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (_, node) in idle.drain(..) {
            if let Err(error) = node.end() {
                if thread::panicking() {
                    eprintln!("{error:#}");
                } else {
                    panic!("{error:#}");
                }
            }
        }
    }
}

impl Node {
    fn new(ground: Ground) -> Self {
        let (jobs, to_do) = channel();
        let thread = thread::spawn(move || live(&ground, &to_do));
        Self { jobs, thread }
    }

    /// Plays a scenario; it can play others if nothing went wrong.
    fn play(self, scenario: &Scenario, states: &[NodeState]) -> Result<Self> {
        let (played, answer) = channel();
        let job = Job {
            scenario: scenario.clone(),
            states: states.to_vec(),
            played,
        };
        // Nobody takes the job, or answers, if the node has come to an end: why is what it returned.
        self.jobs.send(job).ok();
        match answer.recv() {
            Ok(Ok(())) => Ok(self),
            Ok(Err(error)) => Err(error),
            Err(_) => {
                self.end()?;
                Err(anyhow!("the node came to an end in the middle of it"))
            }
        }
    }

    /// Ends the agent, as a user would.
    fn end(self) -> Result<()> {
        drop(self.jobs);
        let ended = self.thread.join();
        ended.map_err(|_| anyhow!("the thread of a node panicked"))?
    }
}

/// The life of a node: until nobody has a scenario for it any more, or one failed.
fn live(ground: &Ground, jobs: &Receiver<Job>) -> Result<()> {
    let world = ground.world()?;
    let mut subject = None;
    for job in jobs {
        let played = turn(&world, subject.take(), &job);
        let failed = played.is_err();
        let played = played.map(|after| subject = Some(after));
        // Who asked may have given up.
        job.played.send(played).ok();
        if failed {
            break;
        }
    }
    subject.map_or(Ok(()), Subject::finish)
}

/// One scenario, after which all is as if it had not been, but for the agent.
fn turn<'w>(world: &'w World, subject: Option<Subject<'w>>, job: &Job) -> Result<Subject<'w>> {
    let (Some(first), Some(state)) = (job.scenario.steps.first(), job.states.first()) else {
        bail!("nothing happens in it");
    };
    let subject = match subject {
        None => Subject::start(&Under::Agent, world, &job.scenario, state)?,
        Some(mut subject) => {
            let begun = subject.advance(0, first, state);
            begun.context("the first step, by an agent that served another scenario before")?;
            subject
        }
    };
    let mut subject = play(&job.scenario, &job.states, world, subject)?;
    subject.rest().context("back to an empty cluster")?;
    Ok(subject)
}
