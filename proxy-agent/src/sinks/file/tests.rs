//! Which states reach the file, and what becomes of it when they cannot.

use std::{
    os::unix::{fs::symlink, net::UnixListener},
    sync::mpsc::{Sender, channel},
};

use proxy_model::{Model, compute};

use super::*;

/// How long anything may take; far above what it needs.
const LIMIT: Duration = Duration::from_secs(30);

/// The state of a node of this name; there is no more in it.
fn state(node: &str) -> NodeState {
    compute(node, [])
}

/// Writes states of these nodes to a file, and waits for the end.
fn write_all(path: &Path, nodes: &[&str]) {
    let (mut sink, ending) = FileSink::start(Destination::File(path.to_owned())).unwrap();
    for node in nodes {
        sink.publish(&state(node), &[]);
    }
    drop(sink);
    ending.wait(LIMIT);
}

#[test]
fn the_file_holds_the_last_state_as_state_prints_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.json");
    fs::write(&path, "of an earlier agent").unwrap();
    write_all(&path, &["node-a", "node-b", "node-c"]);
    let written = fs::read_to_string(&path).unwrap();
    assert_eq!(written, report::to_json(&state("node-c")));
    // Nothing else is left in the directory.
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn while_one_state_is_written_only_the_newest_of_those_that_come_waits() {
    let (entered, begun) = channel();
    let (go_on, may_go_on): (Sender<()>, _) = channel();
    let (mut sink, ending) = FileSink::start_with(move |state, _| {
        entered.send(state.node.name.to_string()).unwrap();
        may_go_on.recv().unwrap();
    })
    .unwrap();
    sink.publish(&state("first"), &[]);
    assert_eq!(begun.recv_timeout(LIMIT).unwrap(), "first");
    for node in ["second", "third", "last"] {
        sink.publish(&state(node), &[]);
    }
    // Nobody is to come any more, and what came is written all the same.
    drop(sink);
    go_on.send(()).unwrap();
    assert_eq!(begun.recv_timeout(LIMIT).unwrap(), "last");
    go_on.send(()).unwrap();
    ending.wait(LIMIT);
    assert!(begun.recv_timeout(LIMIT).is_err(), "there was one more");
}

#[test]
fn a_writer_that_hangs_is_not_waited_for() {
    let (go_on, may_go_on) = channel::<()>();
    let (mut sink, ending) = FileSink::start_with(move |_, _| {
        assert!(may_go_on.recv().is_err());
    })
    .unwrap();
    sink.publish(Model::new("node-a").state(), &[]);
    drop(sink);
    ending.wait(Duration::ZERO);
    drop(go_on);
}

#[test]
fn a_failure_is_told_once_and_the_next_state_is_tried_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("missing/state.json");
    let output = Destination::File(path.clone());
    let mut told = Reported::default();
    let mut attempt = || told.tell(&output, replace(&path, "{}"));
    assert!(attempt());
    assert!(!attempt());
    fs::create_dir(path.parent().unwrap()).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(attempt(), "another reason");
    fs::remove_dir(&path).unwrap();
    assert!(attempt(), "the end of it");
    assert!(!attempt());
    assert_eq!(fs::read_to_string(&path).unwrap(), "{}");
}

#[test]
fn only_a_regular_file_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    let link = directory.path().join("link");
    fs::write(&file, "kept").unwrap();
    symlink(&file, &link).unwrap();
    let socket = directory.path().join("socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    for path in [&link, &socket, &directory.path().to_owned()] {
        let error = replace(path, "{}").unwrap_err();
        assert!(matches!(error, WriteError::Irreplaceable(_)), "{error}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(may_replace(&file), Ok(()));
    assert_eq!(may_replace(&directory.path().join("none")), Ok(()));
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

/// Others may write to the directory, as to /tmp, and make what they like there.
#[test]
fn no_link_that_somebody_put_there_is_followed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.json");
    let victim = directory.path().join("victim");
    fs::write(&victim, "kept").unwrap();
    // The name that it had in earlier versions.
    let trap = directory.path().join(".state.json.new");
    symlink(&victim, &trap).unwrap();
    replace(&path, "{}").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "{}");
    assert_eq!(fs::read_to_string(&victim).unwrap(), "kept");
    assert!(fs::symlink_metadata(&path).unwrap().is_file());
    assert!(fs::symlink_metadata(&trap).unwrap().is_symlink());
}

#[test]
fn the_file_is_for_its_owner_unless_others_were_let_in() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.json");
    replace(&path, "{}").unwrap();
    assert_eq!(mode(&path), 0o600);
    for (before, after) in [
        (0o644, 0o644),
        (0o640, 0o640),
        (0o666, 0o644),
        (0o400, 0o600),
    ] {
        fs::set_permissions(&path, Permissions::from_mode(before)).unwrap();
        replace(&path, "{}").unwrap();
        assert_eq!(mode(&path), after, "{before:o}");
    }
}

#[test]
fn what_killed_agents_left_is_removed_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.json");
    let beside = |name: &str| directory.path().join(name);
    let others = [
        ".state.json.new",
        ".state.json.old",
        "state.json.abcdef.new",
    ];
    for name in others.iter().chain(&[".state.json.aB3xYz.new"]) {
        fs::write(beside(name), "half").unwrap();
    }
    let linked = beside(".state.json.linked.new");
    symlink(beside("state.json.abcdef.new"), &linked).unwrap();
    write_all(&path, &["node-a"]);
    assert!(!beside(".state.json.aB3xYz.new").exists());
    assert!(others.iter().all(|name| beside(name).exists()));
    assert!(fs::symlink_metadata(&linked).unwrap().is_symlink());
}
