//! Server and client against a run loop that answers what a test says.

use std::{fs, os::unix::fs::PermissionsExt, time::Duration};

use proxy_model::{CompareError, NodeInfo, NodeState};
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};

use super::{
    client::{AskError, ask},
    server::{Asked, Socket},
    *,
};
use crate::{backend::choice, report::Form};

/// Long enough for a busy machine: no test waits this long unless it fails.
const PATIENCE: Duration = Duration::from_secs(20);

fn facts(synced: bool) -> AgentFacts {
    AgentFacts {
        synced,
        ..AgentFacts::in_order(choice::fixtures::lacking(&[]))
    }
}

/// Answers each question for node-a until dropped.
fn answering(synced: bool) -> mpsc::Sender<Query> {
    let (sender, mut queries) = mpsc::channel(1);
    tokio::spawn(async move {
        while let Some(query) = queries.recv().await {
            match query {
                Query::State(answer) => {
                    let state = NodeState {
                        node: NodeInfo {
                            name: "node-a".into(),
                            ..NodeInfo::default()
                        },
                        ..NodeState::default()
                    };
                    let agent = facts(synced);
                    answer.send(Snapshot { state, agent }).unwrap();
                }
                Query::Differences(answer) => {
                    let error = CompareError::failed("reading SLOTS: busy");
                    answer.send(vec![("ebpf", Err(error))]).unwrap();
                }
                // Dropped: as by an agent that stops in the middle.
                Query::Explain { .. } => {}
            }
        }
    });
    sender
}

struct Served {
    directory: tempfile::TempDir,
    task: tokio::task::JoinHandle<()>,
}

impl Served {
    fn start(synced: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = Socket::open(&directory.path().join("sub/agent.sock")).unwrap();
        let task = tokio::spawn(socket.serve(answering(synced)));
        Self { directory, task }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("sub/agent.sock")
    }

    async fn ask(&self, path: &str, asked: Asked) -> Result<String, AskError> {
        ask(&self.path(), path, &asked).await
    }
}

fn refused(answer: Result<String, AskError>) -> String {
    match answer {
        Err(AskError::Refused(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_state_is_answered_in_both_forms() {
    let served = Served::start(true);
    let asked = |output| Asked {
        output,
        node: Some("node-a".to_owned()),
        ..Asked::default()
    };
    let json = served.ask("/state", asked(Form::Json)).await.unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["node"]["name"], "node-a");
    assert_eq!(json["agent"]["revision"], 3);
    let text = served.ask("/state", asked(Form::Text)).await.unwrap();
    assert!(text.contains("revision 3 after 70 events"), "{text}");
}

#[tokio::test]
async fn what_cannot_be_answered_is_said() {
    let served = Served::start(true);
    let other = Asked {
        node: Some("node-b".to_owned()),
        ..Asked::default()
    };
    let reason = refused(served.ask("/state", other).await);
    assert!(reason.contains("node-a, not node-b"), "{reason}");
    let reason = refused(served.ask("/kernel", Asked::default()).await);
    assert_eq!(reason, "reading SLOTS: busy");
    let packet = |to: &str| Asked {
        from: Some("10.244.0.1".to_owned()),
        to: Some(to.to_owned()),
        ..Asked::default()
    };
    let reason = refused(served.ask("/explain", packet("10.96.0.1")).await);
    assert!(reason.contains("10.96.0.1"), "{reason}");
    let reason = refused(served.ask("/explain", packet("10.96.0.1:53/udp")).await);
    assert_eq!(reason, "the agent is stopping");
}

#[tokio::test]
async fn nothing_is_told_before_the_cluster_is_known() {
    let served = Served::start(false);
    for path in ["/state", "/kernel"] {
        let reason = refused(served.ask(path, Asked::default()).await);
        assert!(reason.contains("no state yet"), "{reason}");
    }
}

#[tokio::test]
async fn only_the_owner_can_open_the_socket_and_it_goes_with_the_agent() {
    let served = Served::start(true);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&served.path()), 0o600);
    assert_eq!(mode(served.path().parent().unwrap()), 0o700);
    served.task.abort();
    let Served { directory, task } = served;
    assert!(task.await.unwrap_err().is_cancelled());
    let path = directory.path().join("sub/agent.sock");
    assert!(!path.exists());
    let error = ask(&path, "/state", &Asked::default()).await.unwrap_err();
    assert!(matches!(error, AskError::NoAgent { .. }), "{error}");
}

#[tokio::test]
async fn a_socket_that_was_left_behind_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("agent.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let socket = Socket::open(&path).unwrap();
    let task = tokio::spawn(socket.serve(answering(true)));
    assert!(ask(&path, "/state", &Asked::default()).await.is_ok());
    task.abort();
}

#[tokio::test]
async fn a_socket_that_somebody_removes_or_replaces_comes_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sub/agent.sock");
    let first = Socket::open(&path).unwrap();
    let serving = Socket::serve_for_ever(Some(first), path.clone(), answering(true));
    let task = tokio::spawn(serving);
    let answers = async || {
        let answers = async {
            while ask(&path, "/state", &Asked::default()).await.is_err() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, answers).await.expect("it answers");
    };
    answers().await;
    fs::remove_file(&path).unwrap();
    answers().await;
    fs::remove_dir_all(path.parent().unwrap()).unwrap();
    answers().await;
    // Of a process that is gone.
    fs::remove_file(&path).unwrap();
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    answers().await;
    task.abort();
}

#[tokio::test]
async fn without_a_lock_a_socket_that_answers_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("brain.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let socket = Socket::open_unless_served(&path).await.unwrap();
    let task = tokio::spawn(socket.serve(answering(true)));
    let error = Socket::open_unless_served(&path).await.unwrap_err();
    assert!(error.to_string().contains("--admin-socket"), "{error}");
    assert!(ask(&path, "/state", &Asked::default()).await.is_ok());
    task.abort();
}

#[test]
fn the_socket_is_found_by_the_pin_directory() {
    let of = |pin_dir: &str| socket_path(Path::new(pin_dir)).display().to_string();
    assert_eq!(
        of("/sys/fs/bpf/culvert"),
        "/run/culvert/sys-fs-bpf-culvert.sock"
    );
    assert_eq!(of("/sys/fs/bpf/a/"), "/run/culvert/sys-fs-bpf-a.sock");
}

#[test]
fn a_long_pin_directory_gives_a_path_that_fits_and_keeps_its_end() {
    let long = format!("/sys/fs/bpf/{}/ä-the-end", "long-".repeat(40));
    let path = socket_path(Path::new(&long));
    let path = path.to_str().unwrap();
    assert!(path.len() <= LONGEST_PATH, "{path}");
    assert!(path.ends_with("ä-the-end.sock"), "{path}");
    let odd = format!("/{}", "ä".repeat(100));
    assert!(socket_path(Path::new(&odd)).as_os_str().len() <= LONGEST_PATH);
}
