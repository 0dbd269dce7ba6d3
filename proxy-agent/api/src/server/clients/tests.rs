//! What the passing of time makes of clients.

use tokio::time::advance;

use super::*;

fn name(text: &str) -> ClientName {
    text.parse().unwrap()
}

fn clients() -> Clients {
    Clients::new(|_| {})
}

fn enter(clients: &Clients, name: &ClientName, lacks: Vec<Capability>) -> Option<Stream> {
    clients.enter(Peer::User(0), name, true, lacks)
}

fn applied(clients: &Clients, client: &str, revision: u64) {
    clients.report(Reported {
        name: name(client),
        lacks: vec![],
        applied: Some(revision),
        failures: vec![],
        more_failures: 0,
        error: None,
    });
}

fn behind(clients: &Clients) -> Option<Duration> {
    clients.all()[0].behind_for
}

#[tokio::test(start_paused = true)]
async fn a_client_is_behind_since_it_last_came_nearer() {
    let clients = clients();
    clients.published(1);
    applied(&clients, "one", 1);
    advance(Duration::from_secs(9)).await;
    assert_eq!(behind(&clients), None);
    clients.published(2);
    advance(Duration::from_secs(3)).await;
    clients.published(3);
    assert_eq!(behind(&clients), Some(Duration::from_secs(3)));
    // It fails, and says so.
    applied(&clients, "one", 1);
    advance(Duration::from_secs(1)).await;
    assert_eq!(behind(&clients), Some(Duration::from_secs(4)));
    applied(&clients, "one", 2);
    advance(Duration::from_secs(2)).await;
    assert_eq!(behind(&clients), Some(Duration::from_secs(2)));
    applied(&clients, "one", 3);
    assert_eq!(behind(&clients), None);
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_is_gone_is_remembered_for_a_while() {
    let clients = clients();
    let stream = enter(&clients, &name("one"), vec![]).unwrap();
    applied(&clients, "one", 1);
    advance(REMEMBERED * 2).await;
    assert_eq!(clients.all().len(), 1, "it is connected");
    drop(stream);
    advance(REMEMBERED / 2).await;
    assert_eq!(clients.all()[0].streams, 0);
    advance(REMEMBERED / 2).await;
    assert_eq!(clients.all(), []);
}

#[tokio::test(start_paused = true)]
async fn of_too_many_that_are_gone_the_longest_gone_are_forgotten() {
    let clients = clients();
    let _connected = enter(&clients, &name("connected"), vec![]).unwrap();
    for number in 0..=MOST_GONE {
        applied(&clients, &format!("gone-{number:03}"), 1);
        advance(Duration::from_millis(1)).await;
    }
    let all = clients.all();
    assert_eq!(all.len(), 1 + MOST_GONE);
    let names: Vec<_> = all.iter().map(|one| one.name.to_string()).collect();
    assert_eq!(names[..2], ["connected", "gone-001"]);
}

#[tokio::test(start_paused = true)]
async fn two_streams_of_one_name_are_one_client() {
    let clients = clients();
    let first = enter(&clients, &name("one"), vec![]).unwrap();
    let second = enter(&clients, &name("one"), vec![Capability::Sctp]).unwrap();
    let all = clients.all();
    assert_eq!((all.len(), all[0].streams), (1, 2));
    assert_eq!(all[0].lacks, [Capability::Sctp], "what was said last");
    drop(first);
    assert_eq!(clients.all()[0].streams, 1);
    drop(second);
    assert_eq!(clients.all(), [], "it only looked on");
}

#[tokio::test(start_paused = true)]
async fn of_who_is_not_known_nothing_is_believed() {
    let clients = clients();
    let peer = Peer::Host([127, 0, 0, 1].into());
    let look_on = |name_: &str| {
        let lacks = vec![Capability::Sctp];
        clients.enter(peer, &name(name_), false, lacks).unwrap()
    };
    let backend = enter(&clients, &name("ebpf"), vec![]).unwrap();
    applied(&clients, "ebpf", 1);
    let others = [look_on("ebpf"), look_on("ebpf"), look_on("a")];
    let all = clients.all();
    assert_eq!(all.len(), 2, "{all:?}");
    let (a, ebpf) = (&all[0], &all[1]);
    assert_eq!((a.name.as_str(), a.streams, a.lacks.len()), ("a", 1, 0));
    assert_eq!((ebpf.streams, &*ebpf.lacks), (1, &[][..]));
    // The backend goes; who bears its name does not keep it.
    drop(backend);
    advance(REMEMBERED * 2).await;
    let names: Vec<_> = clients.all().iter().map(|one| one.applied).collect();
    assert_eq!(names, [None, None]);
    drop(others);
    assert_eq!(clients.all(), []);
}

#[test]
fn one_peer_does_not_take_all_streams() {
    let clients = clients();
    let enter = |peer| clients.enter(peer, &name("one"), true, vec![]);
    let own: Vec<_> = (0..SHARE).map_while(|_| enter(Peer::User(7))).collect();
    assert_eq!(own.len(), SHARE);
    assert!(enter(Peer::User(7)).is_none());
    let others: Vec<_> = (0..=SHARE).map_while(|_| enter(Peer::User(8))).collect();
    assert_eq!(others.len(), SHARE);
    assert!(enter(Peer::User(9)).is_none(), "there are no more at all");
    drop(own);
    assert!(enter(Peer::User(7)).is_some());
}
