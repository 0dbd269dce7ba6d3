//! Who is connected, and who has to go when one more comes in. A client that says nothing must not
//! keep out one that asks: where a door, or the house, is full, the one goes that has been there for
//! longest and is not being answered, of the host that has most. Knows no protocol.

use std::{
    collections::{BTreeMap, HashMap},
    net::{IpAddr, Ipv6Addr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use tokio::sync::Notify;

/// Everybody who is connected, by whichever door.
#[derive(Debug)]
pub(in crate::serving) struct Guests {
    /// Connections at once, of each door.
    share: usize,
    /// Of all doors together.
    most: usize,
    doors: AtomicU64,
    here: Mutex<Here>,
}

/// Where connections come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Door(u64);

#[derive(Debug, Default)]
struct Here {
    /// Of whoever comes next.
    number: u64,
    /// In the order in which they came.
    guests: BTreeMap<u64, Guest>,
}

#[derive(Debug, Clone)]
struct Guest {
    door: Door,
    host: IpAddr,
    /// Whether it is being answered.
    answered: Arc<AtomicBool>,
    leave: Arc<Notify>,
}

/// One connection, for as long as it lasts.
#[derive(Debug)]
pub(super) struct Stay {
    guests: Arc<Guests>,
    number: u64,
    guest: Guest,
}

impl Guests {
    /// Nobody yet. So many by each door, and so many in all.
    pub(in crate::serving) fn new(share: usize, most: usize) -> Arc<Self> {
        Arc::new(Self {
            share,
            most,
            doors: AtomicU64::new(0),
            here: Mutex::default(),
        })
    }

    /// One more place where connections come in.
    pub(super) fn door(&self) -> Door {
        Door(self.doors.fetch_add(1, Relaxed))
    }

    /// Lets one in, who comes from this address, and for whom somebody else may have to go.
    pub(super) fn enter(self: &Arc<Self>, door: Door, from: IpAddr) -> Stay {
        let guest = Guest {
            door,
            host: host(from),
            answered: Arc::default(),
            leave: Arc::default(),
        };
        let mut here = self.here();
        if here.by(door).count() >= self.share {
            let one = least_missed(&here.by(door).collect::<Vec<_>>());
            here.send_away(one);
        } else if here.guests.len() >= self.most {
            let one = least_missed(&here.guests.iter().collect::<Vec<_>>());
            here.send_away(one);
        }
        let number = here.number;
        here.number += 1;
        here.guests.insert(number, guest.clone());
        Stay {
            guests: Arc::clone(self),
            number,
            guest,
        }
    }

    fn here(&self) -> MutexGuard<'_, Here> {
        // Each change is one insertion or removal: a panic elsewhere leaves nothing half done.
        self.here.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Here {
    fn by(&self, door: Door) -> impl Iterator<Item = (&u64, &Guest)> {
        self.guests.iter().filter(move |(_, one)| one.door == door)
    }

    fn send_away(&mut self, number: Option<u64>) {
        if let Some(guest) = number.and_then(|number| self.guests.remove(&number)) {
            guest.leave.notify_one();
        }
    }
}

/// Who came first of those that are not being answered, from the host that has most of them. If all
/// are being answered, who came first.
fn least_missed(guests: &[(&u64, &Guest)]) -> Option<u64> {
    let first = guests.first().map(|(number, _)| **number);
    let idle = || {
        let all = guests.iter();
        all.filter(|(_, guest)| !guest.answered.load(Relaxed))
    };
    let mut hosts: HashMap<IpAddr, usize> = HashMap::new();
    for (_, guest) in idle() {
        *hosts.entry(guest.host).or_default() += 1;
    }
    let most = hosts.values().max();
    let mut of_most = idle().filter(|(_, guest)| hosts.get(&guest.host) == most);
    of_most.next().map(|(number, _)| **number).or(first)
}

/// Whose address this is: of IPv6, what a host is given as a whole is one.
fn host(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64)).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

impl Stay {
    /// Comes back once somebody else needs the place.
    pub(super) async fn over(&self) {
        self.guest.leave.notified().await;
    }

    /// What makes answers, marked as such while they are made.
    pub(super) fn answering(&self) -> impl Fn() -> Answering + Clone + use<> {
        let answered = Arc::clone(&self.guest.answered);
        move || {
            answered.store(true, Relaxed);
            Answering(Arc::clone(&answered))
        }
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        self.guests.here().guests.remove(&self.number);
    }
}

/// An answer is being made.
#[derive(Debug)]
pub(super) struct Answering(Arc<AtomicBool>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.store(false, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    const HOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    /// The positions of those who have to go.
    fn gone(stays: &[Stay]) -> Vec<usize> {
        let over = |stay: &Stay| stay.over().now_or_never().is_some();
        let all = stays.iter().enumerate();
        all.filter(|(_, stay)| over(stay))
            .map(|(at, _)| at)
            .collect()
    }

    #[test]
    fn a_door_that_is_full_costs_its_own_guests_and_the_oldest_goes_first() {
        let guests = Guests::new(2, 100);
        let (busy, quiet) = (guests.door(), guests.door());
        let stays = [quiet, busy, busy, busy, quiet].map(|door| guests.enter(door, HOST));
        assert_eq!(gone(&stays), [1]);
        let one = guests.enter(busy, HOST);
        assert_eq!(gone(&stays), [2]);
        assert_eq!(gone(&[one]), [0; 0]);
    }

    #[test]
    fn a_full_house_costs_the_oldest_of_all() {
        let guests = Guests::new(2, 3);
        let stays: Vec<Stay> = (0..4).map(|_| guests.enter(guests.door(), HOST)).collect();
        assert_eq!(gone(&stays), [0]);
        drop(stays);
        let again: Vec<Stay> = (0..3).map(|_| guests.enter(guests.door(), HOST)).collect();
        assert_eq!(gone(&again), [0; 0], "those who left need no place");
    }

    #[test]
    fn who_is_being_answered_stays_as_long_as_there_is_somebody_else() {
        let guests = Guests::new(2, 100);
        let door = guests.door();
        let first = guests.enter(door, HOST);
        let answering = first.answering();
        let answer = answering();
        let mut stays = vec![first, guests.enter(door, HOST), guests.enter(door, HOST)];
        assert_eq!(gone(&stays), [1]);
        drop(answer);
        stays.push(guests.enter(door, HOST));
        assert_eq!(gone(&stays), [0]);
        let _all = [stays[2].answering()(), stays[3].answering()()];
        stays.push(guests.enter(door, HOST));
        assert_eq!(gone(&stays), [2]);
    }

    #[test]
    fn a_host_that_comes_again_and_again_costs_its_own() {
        let guests = Guests::new(3, 100);
        let door = guests.door();
        let probe = guests.enter(door, "192.0.2.7".parse().unwrap());
        let from = |text: &str| text.parse::<IpAddr>().unwrap();
        for (one, other) in [
            ("192.0.2.1", "::ffff:192.0.2.1"),
            ("2001:db8::1", "2001:db8::2"),
        ] {
            let flood: Vec<Stay> = (0..20)
                .map(|number| guests.enter(door, from(if number % 2 == 0 { one } else { other })))
                .collect();
            assert_eq!(gone(&flood).len(), 18, "{one}");
        }
        assert!(probe.over().now_or_never().is_none());
    }
}
