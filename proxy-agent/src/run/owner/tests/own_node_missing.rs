//! A name that no node has: told once lists are complete, and when it is over.

use proxy_model::Node;

use super::*;

fn node(name: &str) -> Update {
    Update {
        event: ClusterEvent::NodeUpserted(Node {
            name: name.into(),
            zone: None,
            pod_cidrs: Vec::new(),
            addresses: Vec::new(),
            eligible: true,
        }),
        trigger: None,
    }
}

fn metric(running: &Running) -> Option<String> {
    let text = running.serving.metrics.text().unwrap();
    let mut lines = text.lines();
    let line = lines.find(|line| line.starts_with("culvert_node_missing "));
    line.map(str::to_owned)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_not_there_is_told_once_lists_are_complete_until_it_comes() {
    let running = Running::start(NEVER).await;
    let send = async |updates| {
        let message = Message::Updates(updates);
        running.messages.send(message).await.unwrap();
    };
    // Kubelet may be about to register it: before everything was told, nothing is said.
    send(vec![node("node-b")]).await;
    assert_eq!(
        running.until(|facts| facts.events == 1).await.node_missing,
        None
    );
    assert_eq!(metric(&running).unwrap(), "culvert_node_missing 0");

    running.messages.send(Message::Synced).await.unwrap();
    let facts = running.until(|facts| facts.node_missing.is_some()).await;
    assert_eq!(facts.node_missing.unwrap().nodes, ["node-b"]);
    assert_eq!(metric(&running).unwrap(), "culvert_node_missing 1");

    send(vec![node("node-a")]).await;
    running.until(|facts| facts.node_missing.is_none()).await;
    assert_eq!(metric(&running).unwrap(), "culvert_node_missing 0");
    // Somebody deletes it while the agent runs.
    let gone = ClusterEvent::NodeDeleted("node-a".into());
    send(vec![Update {
        event: gone,
        trigger: None,
    }])
    .await;
    running.until(|facts| facts.node_missing.is_some()).await;
    running.stop().await;
}
