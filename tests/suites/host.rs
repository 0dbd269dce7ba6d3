//! What the agent learns of its host, in network namespaces made for it: the addresses of
//! interfaces, as they come and go. Needs root.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    fmt::Write as _,
    net::IpAddr,
    sync::mpsc::{self, Receiver, SyncSender},
    thread,
    time::Duration,
};

use proxy_agent::host::addresses::Addresses;
use proxy_tests::{
    netns::NetNs,
    requires::{self, Need},
};

const NEEDS: &[Need] = &[Need::Root, Need::Tool("ip")];

/// Long enough for a busy machine: no test waits this long unless it fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// A namespace whose addresses are followed by a thread inside it.
struct Followed {
    lists: Receiver<Vec<IpAddr>>,
    go_on: SyncSender<()>,
}

/// Runs `test` with a [`namespace`], beside a thread in it that tells each list, and then waits until
/// told to look for the next one. The first list has been told.
fn follow(test: impl FnOnce(&NetNs, &Followed)) {
    if !requires::met("host", NEEDS) {
        return;
    }
    let netns = &namespace();
    let (sender, lists) = mpsc::channel();
    let (go_on, going) = mpsc::sync_channel(1);
    thread::scope(|scope| {
        scope.spawn(|| {
            netns
                .run(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread()
                        .enable_all()
                        .build()
                        .unwrap();
                    let _inside = runtime.enter();
                    let mut addresses = Addresses::default();
                    while going.recv().is_ok() {
                        let list = tokio::time::timeout(PATIENCE, addresses.next());
                        let Ok(list) = runtime.block_on(list) else {
                            break;
                        };
                        if sender.send(list).is_err() {
                            break;
                        }
                    }
                })
                .unwrap();
        });
        // Moved in, so that the thread ends with the test, however that ends.
        let followed = Followed { lists, go_on };
        assert_eq!(followed.next(), ["127.0.0.1", "::1"]);
        test(netns, &followed);
    });
}

impl Followed {
    /// Until a list is this long: what came together may be told in parts on a slow machine.
    fn until(&self, length: usize) -> Vec<String> {
        loop {
            let list = self.next();
            if list.len() == length {
                return list;
            }
        }
    }

    fn next(&self) -> Vec<String> {
        self.go_on.send(()).unwrap();
        let list = self.lists.recv_timeout(PATIENCE);
        let list = list.expect("a list that is another one");
        list.iter().map(ToString::to_string).collect()
    }
}

/// A namespace with a device `d0` that has a carrier.
fn namespace() -> NetNs {
    let netns = NetNs::new().unwrap();
    netns
        .ip("link set lo up\n\
             link add d0 type veth peer name d1\n\
             link set d1 up\n\
             link set d0 up\n")
        .unwrap();
    netns
}

#[test]
fn addresses_of_both_families_are_told_as_they_come_and_go() {
    follow(|netns, followed| {
        netns
            .ip("address add 10.1.2.3/24 dev d0\naddress add fd00:1::3/64 dev d0\n")
            .unwrap();
        let both = ["10.1.2.3", "127.0.0.1", "::1", "fd00:1::3"];
        assert_eq!(followed.until(4), both);

        netns.ip("address del 10.1.2.3/24 dev d0\n").unwrap();
        assert_eq!(followed.next(), ["127.0.0.1", "::1", "fd00:1::3"]);
        // An address goes with its interface.
        netns.ip("link del d0\n").unwrap();
        assert_eq!(followed.until(2), ["127.0.0.1", "::1"]);
    });
}

#[test]
fn a_list_that_is_the_same_is_not_told_again() {
    follow(|netns, followed| {
        // What is said while nobody looks: none of it changes what counts.
        netns
            .ip("address add fe80::5/64 dev d0\n\
                 address add fd00:1::4/64 dev lo\n\
                 address del fd00:1::4/64 dev lo\n\
                 address add 127.0.0.1/32 dev d0\n")
            .unwrap();
        followed.go_on.send(()).unwrap();
        let told = followed.lists.recv_timeout(Duration::from_millis(300));
        assert!(told.is_err(), "{told:?}");
        netns.ip("address add 10.1.2.3/24 dev d0\n").unwrap();
        let list = followed.lists.recv_timeout(PATIENCE).unwrap();
        assert_eq!(list.len(), 3, "{list:?}");
    });
}

#[test]
fn a_flood_that_no_buffer_holds_ends_in_the_right_list() {
    follow(|netns, followed| {
        // Nobody reads meanwhile: the kernel has to throw notifications away. The list is longer
        // than one answer of the kernel, too.
        let mut script = String::new();
        for number in 0..2_000 {
            let (high, low) = (number / 250, number % 250 + 1);
            writeln!(script, "address add 10.9.{high}.{low}/16 dev d0").unwrap();
            if number % 2 == 0 {
                writeln!(script, "address del 10.9.{high}.{low}/16 dev d0").unwrap();
            }
        }
        netns.ip(&script).unwrap();
        assert_eq!(followed.next().len(), 1_002);

        netns.ip("link del d0\n").unwrap();
        assert_eq!(followed.until(2), ["127.0.0.1", "::1"]);
    });
}
