//! Programs on several CPUs that share maps, in an order of their operations that is chosen: for
//! tests of what must hold in every order.

use std::{
    sync::{Condvar, Mutex, MutexGuard},
    thread,
    vec::Vec,
};

/// Maps, which as many programs as there are CPUs reach in an order that is chosen.
pub struct Shared<S> {
    state: Mutex<State<S>>,
    changed: Condvar,
}

struct State<S> {
    maps: S,
    /// Of each CPU, what its program is at.
    at: Vec<At>,
    /// Who comes next, once every program waits or has ended.
    turn: Option<usize>,
    order: Order,
    step: usize,
    /// Whether each order before this one was tried.
    searches: bool,
    /// What would come to the same as an order that was tried: operations that may as well come
    /// later.
    tried: Vec<(usize, Touch)>,
    /// There is nothing left but such.
    is_known: bool,
}

/// What is chosen, of how many, at each step; beyond the end the first.
pub type Order = Vec<(usize, usize)>;

/// What an operation touches: a number that stands for it, and whether it is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Touch {
    /// Stands for what is touched.
    pub what: u64,
    /// Whether it is changed.
    pub changes: bool,
}

impl Touch {
    /// Whether the order of the two matters.
    fn meets(self, other: Self) -> bool {
        self.what == other.what && (self.changes || other.changes)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Work,
    Map(Touch),
    End,
}

impl<S> Shared<S> {
    /// These maps, for programs on so many CPUs.
    pub fn new(maps: S, cpus: usize, order: Order) -> Self {
        Self {
            state: Mutex::new(State {
                maps,
                at: std::vec![At::Work; cpus],
                turn: None,
                order,
                step: 0,
                searches: false,
                tried: Vec::new(),
                is_known: false,
            }),
            changed: Condvar::new(),
        }
    }

    /// Outside of any order: of what is no operation, or where nobody else is.
    pub fn now<R>(&self, act: impl FnOnce(&mut S) -> R) -> R {
        act(&mut self.state.lock().unwrap().maps)
    }

    /// What a program on `cpu` does with the maps, when its turn comes.
    pub fn reach<R>(&self, cpu: usize, touch: Touch, act: impl FnOnce(&mut S) -> R) -> R {
        let mut state = self.now_at(cpu, At::Map(touch));
        while state.turn != Some(cpu) {
            state = self.changed.wait(state).unwrap();
        }
        state.turn = None;
        state.at[cpu] = At::Work;
        act(&mut state.maps)
    }

    /// The maps, once every program has ended.
    pub fn into_maps(self) -> S {
        self.state.into_inner().unwrap().maps
    }

    fn now_at(&self, cpu: usize, at: At) -> MutexGuard<'_, State<S>> {
        let mut state = self.state.lock().unwrap();
        state.at[cpu] = at;
        if !state.at.contains(&At::Work) {
            state.choose();
            self.changed.notify_all();
        }
        state
    }
}

impl<S> State<S> {
    fn choose(&mut self) {
        let all = self.at.iter().enumerate();
        let waiting: Vec<_> = all
            .filter_map(|(cpu, at)| match at {
                At::Map(touch) => Some((cpu, *touch)),
                At::Work | At::End => None,
            })
            .collect();
        let Some(first) = waiting.first() else {
            return;
        };
        let mut news = waiting.clone();
        news.retain(|one| !self.tried.contains(one));
        self.is_known |= news.is_empty();
        if self.is_known {
            self.turn = Some(first.0);
            return;
        }
        let index = self.order.get(self.step).map_or(0, |(index, _)| *index) % news.len();
        match self.order.get_mut(self.step) {
            Some(choice) => *choice = (index, news.len()),
            None => self.order.push((index, news.len())),
        }
        self.step += 1;
        // Those before it were tried here. Until something meets them, it does not matter when
        // they come.
        let (turn, touch) = news[index];
        if self.searches {
            self.tried.extend(&news[..index]);
        }
        self.tried.retain(|(_, other)| !touch.meets(*other));
        self.turn = Some(turn);
    }
}

/// Says that the program ended, also one that panics: others would wait for it.
struct Ends<'a, S>(&'a Shared<S>, usize);

impl<S> Drop for Ends<'_, S> {
    fn drop(&mut self) {
        drop(self.0.now_at(self.1, At::End));
    }
}

/// Runs `program` on `cpus` CPUs at once, in `order`. Returns the maps, what each program returned,
/// and the order as it came to.
pub fn run<S: Send, R: Send>(
    maps: S,
    cpus: usize,
    order: Order,
    program: impl Fn(&Shared<S>, usize) -> R + Sync,
) -> (S, Vec<R>, Order) {
    let (state, ends) = end(Shared::new(maps, cpus, order), cpus, &program);
    (state.maps, ends, state.order)
}

fn end<S: Send, R: Send>(
    shared: Shared<S>,
    cpus: usize,
    program: &(impl Fn(&Shared<S>, usize) -> R + Sync),
) -> (State<S>, Vec<R>) {
    let ends = thread::scope(|scope| {
        let shared = &shared;
        let programs: Vec<_> = (0..cpus)
            .map(|cpu| {
                scope.spawn(move || {
                    let _ends = Ends(shared, cpu);
                    program(shared, cpu)
                })
            })
            .collect();
        let ends = programs.into_iter().map(|program| program.join().unwrap());
        ends.collect()
    });
    (shared.state.into_inner().unwrap(), ends)
}

/// Runs `program` on `cpus` CPUs in every order, but for those that come to the same, and tells
/// `check` how each ended. Returns how many orders there were.
pub fn every_order<S: Send, R: Send>(
    cpus: usize,
    start: impl Fn() -> S,
    program: impl Fn(&Shared<S>, usize) -> R + Sync,
    check: impl Fn(S, Vec<R>, &Order),
) -> usize {
    let (mut order, mut orders) = (Order::new(), 0);
    loop {
        let shared = Shared::new(start(), cpus, order);
        shared.state.lock().unwrap().searches = true;
        let (state, ends) = end(shared, cpus, &program);
        order = state.order;
        check(state.maps, ends, &order);
        orders += usize::from(!state.is_known);
        // The next one: another choice at the last step that has one left.
        while let Some((index, count)) = order.pop() {
            if index + 1 < count {
                order.push((index + 1, count));
                break;
            }
        }
        if order.is_empty() {
            return orders;
        }
    }
}
