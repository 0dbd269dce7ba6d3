//! What the passing of time makes of clients.

use tokio::time::advance;

use super::*;

fn name(text: &str) -> ClientName {
    text.parse().unwrap()
}

fn clients() -> Clients {
    Clients::new(|_| {})
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
    let stream = clients.enter(&name("one"), vec![]).unwrap();
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
    let _connected = clients.enter(&name("connected"), vec![]).unwrap();
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
    let first = clients.enter(&name("one"), vec![]).unwrap();
    let second = clients.enter(&name("one"), vec![Capability::Sctp]).unwrap();
    let all = clients.all();
    assert_eq!((all.len(), all[0].streams), (1, 2));
    assert_eq!(all[0].lacks, [Capability::Sctp], "what was said last");
    drop(first);
    assert_eq!(clients.all()[0].streams, 1);
    drop(second);
    assert_eq!(clients.all(), [], "it only looked on");
}
