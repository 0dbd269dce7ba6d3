//! Loads: threads that send requests until told to stop, and count what came back.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::Instant,
};

use super::{
    ATTEMPT_LIMIT,
    probe::{self, Socket},
    wire::{Attempt, Load, LoadReport},
};
use crate::emulated;

/// The loads of one prober, by name.
#[derive(Debug, Default)]
pub(super) struct Loads(HashMap<String, Running>);

#[derive(Debug)]
struct Running {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    started: Instant,
}

#[derive(Debug)]
struct Shared {
    load: Load,
    stop: AtomicBool,
    report: Mutex<LoadReport>,
    /// Notified after each request.
    counted: Condvar,
}

impl Loads {
    pub(super) fn start(&mut self, load: Load) -> Result<(), String> {
        if self.0.contains_key(&load.name) {
            return Err(format!("a load called {} is running", load.name));
        }
        let name = load.name.clone();
        let count = load.threads;
        let shared = Arc::new(Shared {
            load,
            stop: AtomicBool::new(false),
            report: Mutex::default(),
            counted: Condvar::new(),
        });
        let (first, firsts) = mpsc::channel();
        let threads = (0..count)
            .map(|_| {
                let (shared, first) = (Arc::clone(&shared), first.clone());
                thread::spawn(move || shared.send(first))
            })
            .collect();
        drop(first);
        self.0.insert(
            name,
            Running {
                shared,
                threads,
                started: Instant::now(),
            },
        );
        // Each thread says once that it has sent, then drops its end.
        for () in firsts {}
        Ok(())
    }

    pub(super) fn report(&self, name: &str) -> Result<LoadReport, String> {
        let running = self.find(name)?;
        Ok(running.with_time(running.shared.report().clone()))
    }

    /// Waits until each has finished so many more, counted from now.
    pub(super) fn wait(&self, more: &[(String, u64)]) -> Result<Vec<LoadReport>, String> {
        let mut targets = Vec::new();
        for (name, requests) in more {
            let running = self.find(name)?;
            let target = running.shared.report().finished() + requests;
            targets.push((running, target));
        }
        let reached = |(running, target): (&Running, u64)| {
            let unfinished = |report: &mut LoadReport| report.finished() < target;
            // Each request ends, at the latest after its time limit.
            let shared = &running.shared;
            let report = shared.counted.wait_while(shared.report(), unfinished);
            running.with_time(report.unwrap_or_else(PoisonError::into_inner).clone())
        };
        Ok(targets.into_iter().map(reached).collect())
    }

    fn find(&self, name: &str) -> Result<&Running, String> {
        let running = self.0.get(name);
        running.ok_or_else(|| format!("no load is called {name}"))
    }

    pub(super) fn stop(&mut self, name: &str) -> Result<LoadReport, String> {
        let running = self
            .0
            .remove(name)
            .ok_or_else(|| format!("no load is called {name}"))?;
        running.shared.stop.store(true, Ordering::Relaxed);
        let elapsed = running.started.elapsed();
        for thread in running.threads {
            thread
                .join()
                .map_err(|_| "a thread of the load panicked".to_owned())?;
        }
        let report = running.shared.report().clone();
        Ok(LoadReport { elapsed, ..report })
    }
}

impl Running {
    fn with_time(&self, report: LoadReport) -> LoadReport {
        LoadReport {
            elapsed: self.started.elapsed(),
            ..report
        }
    }
}

impl Shared {
    fn send(&self, first: mpsc::Sender<()>) {
        let mut first = Some(first);
        let Load {
            transport,
            to,
            pause,
            keep,
            ..
        } = self.load;
        let mut kept: Option<Socket> = None;
        while !self.stop.load(Ordering::Relaxed) {
            let started = Instant::now();
            let attempt = match &mut kept {
                Some(socket) => socket.attempt(to, ATTEMPT_LIMIT),
                None if keep => match Socket::open(transport, to, ATTEMPT_LIMIT) {
                    Ok(socket) => kept.insert(socket).attempt(to, ATTEMPT_LIMIT),
                    Err(failed) => failed.into(),
                },
                None => probe::once(transport, to, ATTEMPT_LIMIT),
            };
            self.count(&attempt, to, started);
            // The receiver may only be gone if the program is ending.
            first.take().map(|first| first.send(()).ok());
            let pause = emulated::pause(pause);
            if !pause.is_zero() {
                thread::sleep(pause);
            }
        }
    }

    fn count(&self, attempt: &Attempt, to: SocketAddr, started: Instant) {
        let took = started.elapsed();
        let mut report = self.report();
        match attempt.answer_as(to) {
            Ok(endpoint) => {
                report.answered += 1;
                *report.answers.entry(endpoint).or_default() += 1;
                report.slowest = report.slowest.max(took);
            }
            Err(failure) => *report.failures.entry(failure).or_default() += 1,
        }
        self.counted.notify_all();
    }

    fn report(&self) -> MutexGuard<'_, LoadReport> {
        // Counts stay meaningful after a panic elsewhere.
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
