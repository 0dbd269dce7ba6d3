//! How many connections there may be, and whose. One peer can never take all places, and whoever
//! has said nothing yet makes room for who comes.

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
    proven: Arc<AtomicBool>,
    _close: oneshot::Sender<Infallible>,
}

/// A connection's place, until this is dropped.
#[derive(Debug)]
pub struct Place {
    doors: Arc<Doors>,
    number: u64,
    /// Whether somebody is there who is served.
    pub proven: Arc<AtomicBool>,
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
        let proven = Arc::new(AtomicBool::new(false));
        let number = open.next;
        open.next += 1;
        let entry = Entry {
            peer,
            proven: Arc::clone(&proven),
            _close: close,
        };
        open.all.insert(number, entry);
        let doors = Arc::clone(self);
        let place = Place {
            doors,
            number,
            proven,
        };
        Some((place, closed))
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        // Each change is whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// Closes the oldest connection that nobody has used so far, of those that `may`.
    fn make_room(&mut self, may: impl Fn(&Entry) -> bool) -> Option<()> {
        let mut all = self.all.iter();
        let (&number, _) = all.find(|(_, entry)| !entry.proven.load(Relaxed) && may(entry))?;
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
            place.proven.store(true, Relaxed);
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
