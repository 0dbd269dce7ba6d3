//! Manifests as a fuzzer writes them. The input is a scenario file, as far as it is one: lines
//! `-- apply FILE --` and `-- delete FILE --` begin a change of one file, other sections are left
//! out, and text without sections is a file of its own. So every scenario is a seed, and what a
//! fuzzer finds can become a scenario.

use std::{fs, path::Path, sync::OnceLock};

use proxy_agent::cluster::manifests::{ManifestSource, load_once};
use proxy_model::{
    ClusterEvent, IpNet, Model, Settings, compute,
    oracle::{Detector, Traffic},
};
use tempfile::TempDir;

use crate::{changes::Told, questions};

/// More changes than this teach a fuzzer nothing new.
const CHANGES: usize = 12;

/// Reads `data` as manifests, step by step.
///
/// # Panics
///
/// If the model after the steps is not the one that the files lead to at once, or anything else
/// is broken.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let dir = directory();
    let mut source = ManifestSource::new(vec![dir.path().to_owned()]);
    let mut model = Model::new(settings());
    let mut told = Told::default();
    let mut events: Vec<ClusterEvent> = Vec::new();
    for change in changes(&text).into_iter().take(CHANGES) {
        change.perform(dir.path());
        let poll = source.poll();
        for event in poll.events {
            model.apply(event.clone());
            events.push(event);
        }
        told.update(&mut model);
    }
    assert_eq!(*model.state(), compute(settings(), events));
    // A broken file keeps its last good objects, which somebody who comes later never saw.
    if let Ok(events) = load_once(vec![dir.path().to_owned()]) {
        assert_eq!(*model.state(), compute(settings(), events));
    }
    questions::ask((&model).into(), questions::to_frontends(model.state()));
}

/// Those that scenarios have, with a detector.
fn settings() -> Settings {
    let pods: IpNet = "10.244.0.0/16".parse().expect("this is a range");
    Settings {
        traffic: Traffic {
            detector: Detector::ClusterCidr(vec![pods]),
            masquerade_all: false,
        },
        ..Settings::from("node-a")
    }
}

/// One step: a file that is written, or deleted.
#[derive(Debug, PartialEq, Eq)]
struct FileChange<'a> {
    file: String,
    content: Option<&'a str>,
}

impl FileChange<'_> {
    fn perform(&self, dir: &Path) {
        let path = dir.join(&self.file);
        let done = match self.content {
            Some(content) => fs::write(&path, content),
            None => match fs::remove_file(&path) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
                done => done,
            },
        };
        if let Err(error) = done {
            panic!(
                "cannot write {}, which is no finding: {error}",
                path.display()
            );
        }
    }
}

fn changes(text: &str) -> Vec<FileChange<'_>> {
    let mut changes = Vec::new();
    let mut open: Option<(&str, usize)> = None;
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        let header = line.trim_end().strip_prefix("-- ");
        if let Some(header) = header.and_then(|rest| rest.strip_suffix(" --")) {
            changes.extend(open.and_then(|(header, start)| change(header, &text[start..offset])));
            open = Some((header, offset + line.len()));
        }
        offset += line.len();
    }
    match open {
        Some((header, start)) => changes.extend(change(header, &text[start..])),
        None => changes.extend(change("apply objects.yaml", text)),
    }
    changes
}

fn change<'a>(header: &str, body: &'a str) -> Option<FileChange<'a>> {
    let (verb, name) = header.split_once(' ')?;
    // A name of the fuzzer's must not lead out of the directory.
    let letters = name.chars().filter(char::is_ascii_alphanumeric).take(16);
    let is_json = Path::new(name).extension().is_some_and(|it| it == "json");
    let extension = if is_json { "json" } else { "yaml" };
    let file = format!("{}.{extension}", letters.collect::<String>());
    match verb {
        "apply" => Some(FileChange {
            file,
            content: Some(body),
        }),
        "delete" => Some(FileChange {
            file,
            content: None,
        }),
        _ => None,
    }
}

/// An empty directory: in memory, where a fuzzer can write thousands of files a second, unless
/// the caller has a place for temporary files of its own.
fn directory() -> TempDir {
    static PLACE: OnceLock<Option<&Path>> = OnceLock::new();
    let memory = Path::new("/dev/shm");
    let place = *PLACE.get_or_init(|| memory.is_dir().then_some(memory));
    let dir = match place {
        Some(place) => tempfile::tempdir_in(place),
        None => tempfile::tempdir(),
    };
    dir.unwrap_or_else(|error| panic!("no directory for manifests, which is no finding: {error}"))
}

#[cfg(test)]
mod tests;
