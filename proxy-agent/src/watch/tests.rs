//! Real files and the kernel's notifications; pacing with a paused clock.

use std::fs;

use tempfile::TempDir;
use tokio::time::timeout;

use super::*;

/// Longer than any notification takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

async fn expect_change(watch: &mut Watch, after: &str) {
    assert!(
        timeout(PATIENCE, watch.changed()).await.is_ok(),
        "no change reported after: {after}"
    );
}

fn dir_with(files: &[&str]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for file in files {
        fs::write(dir.path().join(file), "before").unwrap();
    }
    dir
}

#[tokio::test]
async fn changes_in_a_directory_are_reported() {
    let dir = dir_with(&["a.yaml"]);
    let at = |name: &str| dir.path().join(name);
    let mut watch = watch(&[dir.path().to_owned()]).unwrap();
    fs::write(at("a.yaml"), "written").unwrap();
    expect_change(&mut watch, "a write").await;
    fs::write(at("b.yaml"), "new").unwrap();
    expect_change(&mut watch, "a new file").await;
    fs::rename(at("b.yaml"), at("a.yaml")).unwrap();
    expect_change(&mut watch, "a rename").await;
    fs::remove_file(at("a.yaml")).unwrap();
    expect_change(&mut watch, "a removal").await;
}

#[tokio::test]
async fn a_file_is_followed_through_replacement() {
    let dir = dir_with(&["a.yaml"]);
    let file = dir.path().join("a.yaml");
    let mut watch = watch(std::slice::from_ref(&file)).unwrap();
    for round in ["first", "second"] {
        let next = dir.path().join("next");
        fs::write(&next, round).unwrap();
        fs::rename(&next, &file).unwrap();
        expect_change(&mut watch, round).await;
    }
    fs::remove_file(&file).unwrap();
    expect_change(&mut watch, "removal").await;
    fs::write(&file, "again").unwrap();
    expect_change(&mut watch, "creation").await;
}

#[tokio::test]
async fn the_swap_of_a_mounted_config_map_is_reported() {
    let dir = dir_with(&[]);
    let at = |name: &str| dir.path().join(name);
    let publish = |version: &str| {
        fs::create_dir(at(version)).unwrap();
        fs::write(at(version).join("a.yaml"), version).unwrap();
        std::os::unix::fs::symlink(version, at("..tmp")).unwrap();
        fs::rename(at("..tmp"), at("..data")).unwrap();
    };
    publish("..v1");
    std::os::unix::fs::symlink("..data/a.yaml", at("a.yaml")).unwrap();
    let mut watch = watch(&[at("a.yaml")]).unwrap();
    for version in ["..v2", "..v3"] {
        publish(version);
        expect_change(&mut watch, version).await;
        assert_eq!(fs::read_to_string(at("a.yaml")).unwrap(), version);
    }
}

#[tokio::test]
async fn a_link_is_followed_to_where_it_leads() {
    let dir = dir_with(&[]);
    let elsewhere = dir_with(&["a.yaml"]);
    let link = dir.path().join("a.yaml");
    std::os::unix::fs::symlink(elsewhere.path().join("a.yaml"), &link).unwrap();
    let mut watch = watch(std::slice::from_ref(&link)).unwrap();
    fs::write(elsewhere.path().join("a.yaml"), "written").unwrap();
    expect_change(&mut watch, "a write to the target").await;
}

#[tokio::test]
async fn a_directory_is_followed_through_replacement() {
    let dir = dir_with(&[]);
    let manifests = dir.path().join("manifests");
    fs::create_dir(&manifests).unwrap();
    let mut watch = watch(std::slice::from_ref(&manifests)).unwrap();
    fs::remove_dir(&manifests).unwrap();
    expect_change(&mut watch, "removal").await;
    fs::create_dir(&manifests).unwrap();
    expect_change(&mut watch, "creation").await;
    fs::write(manifests.join("a.yaml"), "new").unwrap();
    expect_change(&mut watch, "a new file in the new directory").await;
}

#[test]
fn reading_is_no_change() {
    use notify::event::{CreateKind, DataChange, Flag, ModifyKind, RemoveKind};
    for (kind, expected) in [
        (EventKind::Access(AccessKind::Open(AccessMode::Any)), false),
        (EventKind::Access(AccessKind::Read), false),
        (
            EventKind::Access(AccessKind::Close(AccessMode::Read)),
            false,
        ),
        (
            EventKind::Access(AccessKind::Close(AccessMode::Write)),
            true,
        ),
        (EventKind::Modify(ModifyKind::Data(DataChange::Any)), true),
        (EventKind::Create(CreateKind::File), true),
        (EventKind::Remove(RemoveKind::File), true),
    ] {
        assert_eq!(is_change(kind), expected, "{kind:?}");
    }
    // The kernel dropped events: anything may have changed.
    assert!(is_change(
        notify::Event::new(EventKind::Other)
            .set_flag(Flag::Rescan)
            .kind
    ));
}

#[test]
fn a_path_that_does_not_exist_yet_is_watched_from_above() {
    let dir = dir_with(&[]);
    assert!(watch(&[dir.path().join("none/such/file.yaml")]).is_ok());
    assert_eq!(nearest_directory(Path::new("")), Some(PathBuf::from(".")));
}

/// Reports every 20 ms for `duration`, and returns when each change came, in milliseconds.
async fn paced(duration: Duration) -> Vec<u128> {
    let signal = Arc::new(Notify::new());
    let reporter = Arc::clone(&signal);
    let start = Instant::now();
    let reports = tokio::spawn(async move {
        while start.elapsed() < duration {
            reporter.notify_one();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let mut changes = Changes {
        reported: signal,
        first: None,
    };
    let mut seen = Vec::new();
    while timeout(Duration::from_secs(5), changes.next())
        .await
        .is_ok()
    {
        seen.push(start.elapsed().as_millis());
    }
    reports.await.unwrap();
    seen
}

#[tokio::test(start_paused = true)]
async fn a_burst_is_one_change_once_it_is_over() {
    let seen = paced(Duration::from_millis(100)).await;
    assert!(matches!(seen[..], [130..=150]), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_steady_stream_is_reported_at_intervals() {
    let seen = paced(Duration::from_secs(3)).await;
    assert!((5..=7).contains(&seen.len()), "{seen:?}");
    assert!(matches!(seen[0], 500..=520), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_wait_loses_no_change() {
    let mut changes = Changes {
        reported: Arc::new(Notify::new()),
        first: None,
    };
    changes.reported.notify_one();
    assert!(timeout(QUIET / 2, changes.next()).await.is_err());
    assert!(timeout(QUIET * 2, changes.next()).await.is_ok());
}
