//! How many connections there may be, and whose. One peer can never take all places. Whoever has said
//! nothing yet makes room for who comes; so does who only looks on, where others are known.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use tokio::sync::oneshot;

use super::peer::Peer;

/// Connections at a time.
pub const MOST: usize = 1_024;
/// Those of one peer.
pub const SHARE: usize = MOST / 2;

/// The places of one listener.
#[derive(Debug, Default)]
pub struct Doors(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    /// Grows with each connection.
    next: u64,
    /// The oldest first.
    all: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    peer: Peer,
    stay: Arc<Stay>,
    _close: oneshot::Sender<Infallible>,
}

/// A connection's place, until this is dropped.
#[derive(Debug)]
pub struct Place {
    doors: Arc<Doors>,
    number: u64,
    /// What it was used for.
    pub stay: Arc<Stay>,
}

/// What a connection was used for so far.
#[derive(Debug, Default)]
pub struct Stay {
    used: AtomicBool,
    keeps: AtomicBool,
}

impl Stay {
    /// Somebody is served; with `keeps`, somebody who does not have to make room.
    pub fn is_used(&self, keeps: bool) {
        self.used.store(true, Relaxed);
        self.keeps.fetch_or(keeps, Relaxed);
    }

    /// Whether somebody was served.
    pub fn was_used(&self) -> bool {
        self.used.load(Relaxed)
    }
}

/// Is done once the connection has to make room.
pub type Closed = oneshot::Receiver<Infallible>;

impl Doors {
    /// A place for a connection of `peer`; `None` if all that it could have are in use.
    pub fn enter(self: &Arc<Self>, peer: Peer) -> Option<(Place, Closed)> {
        let mut open = self.open();
        let own = open.all.values().filter(|entry| entry.peer == peer).count();
        if own >= SHARE {
            open.make_room(|entry| entry.peer == peer)?;
        } else if open.all.len() >= MOST {
            open.make_room(|_| true)?;
        }
        let (close, closed) = oneshot::channel();
        let stay = Arc::<Stay>::default();
        let number = open.next;
        open.next += 1;
        let entry = Entry {
            peer,
            stay: Arc::clone(&stay),
            _close: close,
        };
        open.all.insert(number, entry);
        let doors = Arc::clone(self);
        let place = Place {
            doors,
            number,
            stay,
        };
        Some((place, closed))
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        // Each change is whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// Closes the oldest connection that does not keep its place, of those that `may`.
    fn make_room(&mut self, may: impl Fn(&Entry) -> bool) -> Option<()> {
        let mut all = self.all.iter();
        let (&number, _) = all.find(|(_, entry)| !entry.stay.keeps.load(Relaxed) && may(entry))?;
        self.all.remove(&number).map(drop)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.doors.open().all.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(doors: &Arc<Doors>, user: u32, count: usize) -> Vec<(Place, Closed)> {
        let enter = || doors.enter(Peer::User(user)).unwrap();
        (0..count).map(|_| enter()).collect()
    }

    fn prove(places: &[(Place, Closed)]) {
        for (place, _) in places {
            place.stay.is_used(true);
        }
    }

    fn is_closed(closed: &mut Closed) -> bool {
        closed.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    #[test]
    fn who_says_nothing_makes_room_for_who_comes() {
        let doors = Arc::default();
        let mut silent = fill(&doors, 7, SHARE);
        prove(&silent[..1]);
        let _other = fill(&doors, 8, SHARE);
        let _more = fill(&doors, 7, 1);
        let closed: Vec<_> = silent.iter_mut().map(|(_, one)| is_closed(one)).collect();
        assert_eq!(closed.iter().filter(|closed| **closed).count(), 1);
        assert!(closed[1], "the oldest that has not said anything");
        let _third = fill(&doors, 9, 1);
        assert!(is_closed(&mut silent[2].1));
    }

    #[test]
    fn who_only_looks_on_makes_room_for_who_comes() {
        let doors = Arc::default();
        let mut lookers = fill(&doors, 7, SHARE);
        for (place, _) in &lookers {
            place.stay.is_used(false);
        }
        assert!(lookers[0].0.stay.was_used());
        let _backend = fill(&doors, 7, 1);
        assert!(is_closed(&mut lookers[0].1) && !is_closed(&mut lookers[1].1));
    }

    #[test]
    fn one_peer_has_its_share_and_no_more() {
        let doors = Arc::default();
        let mut own = fill(&doors, 7, SHARE);
        prove(&own);
        assert!(doors.enter(Peer::User(7)).is_none());
        let others = fill(&doors, 8, MOST - SHARE);
        assert!(own.iter_mut().all(|(_, closed)| !is_closed(closed)));
        prove(&others);
        assert!(
            doors.enter(Peer::User(9)).is_none(),
            "there is no place at all"
        );
        own.pop();
        fill(&doors, 9, 1);
    }
}
