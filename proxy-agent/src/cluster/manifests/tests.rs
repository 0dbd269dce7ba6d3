//! Files on disk through a [`ManifestSource`] to events.

use std::fmt::Write as _;

use proptest::prelude::*;
use proxy_model::{Model, NodeState};
use tempfile::TempDir;

use super::*;

/// A directory of manifests, a source that reads it and a model that follows the source.
struct World {
    dir: TempDir,
    source: ManifestSource,
    model: Model,
}

impl World {
    /// `paths` are relative to the directory; `""` is the directory itself.
    fn new(paths: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let paths = paths.iter().map(|path| dir.path().join(path)).collect();
        Self {
            source: ManifestSource::new(paths),
            model: Model::new("node-a"),
            dir,
        }
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::write(self.dir.path().join(name), text).unwrap();
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.dir.path().join(name)).unwrap();
    }

    /// Polls, feeds the model, and returns the names of rejected files and of recovered ones.
    fn poll(&mut self) -> (Vec<String>, Vec<String>) {
        let poll = self.source.poll();
        for event in poll.events {
            self.model.apply(event);
        }
        self.model.update();
        let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
        let rejected = poll
            .rejected
            .iter()
            .map(|rejected| name(&rejected.file))
            .collect();
        (rejected, poll.recovered.iter().map(name).collect())
    }

    /// What the model holds: `name address` per Service.
    fn services(&self) -> Vec<String> {
        let service = |(key, state): (
            &proxy_model::ServicePortKey,
            &Arc<proxy_model::ServiceState>,
        )| {
            let frontends: Vec<_> = state
                .frontends
                .iter()
                .filter_map(|frontend| Some(frontend.address?.to_string()))
                .collect();
            format!("{} {}", key.service.name, frontends.join(","))
        };
        self.model.state().services.iter().map(service).collect()
    }

    fn diagnostics(&self) -> Vec<String> {
        self.model
            .state()
            .diagnostics
            .iter()
            .map(ToString::to_string)
            .collect()
    }
}

/// The manifest of a Service called `name` with the ClusterIP `10.96.0.{octet}`.
fn service(name: &str, octet: u8) -> String {
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{namespace: shop, name: {name}}}\n\
         spec: {{clusterIP: 10.96.0.{octet}, ports: [{{port: 80}}]}}\n"
    )
}

const NOTHING: (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());

fn rejected(name: &str) -> (Vec<String>, Vec<String>) {
    (vec![name.to_owned()], Vec::new())
}

fn recovered(name: &str) -> (Vec<String>, Vec<String>) {
    (Vec::new(), vec![name.to_owned()])
}

#[test]
fn files_of_a_directory_come_change_and_go() {
    let mut world = World::new(&[""]);
    assert_eq!(world.poll(), NOTHING);
    world.write("a.yaml", service("web", 1) + &service("db", 2));
    assert_eq!(world.poll(), NOTHING);
    assert_eq!(world.services(), ["db 10.96.0.2", "web 10.96.0.1"]);
    world.write("a.yaml", service("web", 3));
    world.write("b.yaml", service("cache", 4));
    assert_eq!(world.poll(), NOTHING);
    assert_eq!(world.services(), ["cache 10.96.0.4", "web 10.96.0.3"]);
    world.remove("a.yaml");
    assert_eq!(world.poll(), NOTHING);
    assert_eq!(world.services(), ["cache 10.96.0.4"]);
}

#[test]
fn what_did_not_change_is_no_event() {
    let mut world = World::new(&[""]);
    world.write("a.yaml", service("web", 1) + &service("db", 2));
    world.poll();
    assert_eq!(world.source.poll(), Poll::default());
    // Another order and other comments are the same objects.
    world.write("a.yaml", service("db", 2) + "# both\n" + &service("web", 1));
    assert_eq!(world.source.poll(), Poll::default());
    world.write("a.yaml", service("web", 1) + &service("db", 3));
    let events = world.source.poll().events;
    let [ClusterEvent::ServiceUpserted(changed)] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!(&*changed.name.name, "db");
}

#[test]
fn a_broken_file_keeps_its_last_good_objects_and_is_reported_once() {
    let mut world = World::new(&[""]);
    world.write("a.yaml", service("web", 1));
    world.write("b.yaml", service("db", 2));
    world.poll();
    for broken in ["kind: [", "", "kind: Service\n"] {
        world.write("a.yaml", broken);
        assert_eq!(world.poll(), rejected("a.yaml"), "{broken:?}");
        assert_eq!(world.poll(), NOTHING, "{broken:?}");
        assert_eq!(
            world.services(),
            ["db 10.96.0.2", "web 10.96.0.1"],
            "{broken:?}"
        );
    }
    // Broken anew, if in the same way: whoever edits it hears so after each attempt.
    world.write("a.yaml", "# again\nkind: Service\n");
    assert_eq!(world.poll(), rejected("a.yaml"));
    // Others still change.
    world.write("b.yaml", service("db", 3));
    assert_eq!(world.poll(), NOTHING);
    assert_eq!(world.services(), ["db 10.96.0.3", "web 10.96.0.1"]);
    world.write("a.yaml", service("web", 4));
    assert_eq!(world.poll(), recovered("a.yaml"));
    assert_eq!(world.services(), ["db 10.96.0.3", "web 10.96.0.4"]);
}

#[test]
fn a_broken_document_rejects_its_whole_file() {
    let mut world = World::new(&[""]);
    world.write("a.yaml", service("web", 1));
    world.poll();
    world.write("a.yaml", service("web", 2) + "---\nkind: Service\n");
    assert_eq!(world.poll(), rejected("a.yaml"));
    assert_eq!(world.services(), ["web 10.96.0.1"]);
}

#[test]
fn a_broken_file_that_is_removed_takes_its_objects_with_it() {
    let mut world = World::new(&[""]);
    world.write("a.yaml", service("web", 1));
    world.poll();
    world.write("a.yaml", "kind: [");
    world.poll();
    world.remove("a.yaml");
    assert_eq!(world.poll(), recovered("a.yaml"));
    assert!(world.services().is_empty());
}

#[cfg(target_os = "linux")]
#[test]
fn a_pipe_in_a_directory_is_reported_and_waited_for_by_nobody() {
    use nix::{sys::stat::Mode, unistd::mkfifo};

    let mut world = World::new(&[""]);
    world.write("a.yaml", service("web", 1));
    world.poll();
    mkfifo(&world.dir.path().join("b.yaml"), Mode::S_IRWXU).unwrap();
    assert_eq!(world.poll(), rejected("b.yaml"));
    world.write("a.yaml", service("web", 2));
    assert_eq!(world.poll(), NOTHING);
    assert_eq!(world.services(), ["web 10.96.0.2"]);
    // In the place of a file, too, whose objects stay.
    world.remove("a.yaml");
    mkfifo(&world.dir.path().join("a.yaml"), Mode::S_IRWXU).unwrap();
    assert_eq!(world.poll(), rejected("a.yaml"));
    assert_eq!(world.services(), ["web 10.96.0.2"]);
}

#[test]
fn a_given_path_that_vanishes_keeps_its_objects() {
    let mut world = World::new(&["a.yaml", "dir"]);
    world.write("a.yaml", service("web", 1));
    fs::create_dir(world.dir.path().join("dir")).unwrap();
    world.write("dir/b.yaml", service("db", 2));
    assert_eq!(world.poll(), NOTHING);
    world.remove("a.yaml");
    assert_eq!(world.poll(), rejected("a.yaml"));
    fs::rename(world.dir.path().join("dir"), world.dir.path().join("moved")).unwrap();
    assert_eq!(world.poll(), rejected("dir"));
    assert_eq!(world.poll(), NOTHING);
    assert_eq!(world.services(), ["db 10.96.0.2", "web 10.96.0.1"]);
    fs::rename(world.dir.path().join("moved"), world.dir.path().join("dir")).unwrap();
    assert_eq!(world.poll(), recovered("dir"));
    world.write("a.yaml", service("web", 3));
    assert_eq!(world.poll(), recovered("a.yaml"));
    assert_eq!(world.services(), ["db 10.96.0.2", "web 10.96.0.3"]);
}

#[test]
fn of_two_definitions_the_later_file_counts_and_both_are_named() {
    let mut world = World::new(&["z.yaml", "dir"]);
    fs::create_dir(world.dir.path().join("dir")).unwrap();
    world.write("z.yaml", service("web", 1));
    world.write("dir/a.yaml", service("web", 2));
    world.write("dir/b.yaml", service("x", 9) + &service("web", 3));
    world.poll();
    assert_eq!(world.services(), ["web 10.96.0.3", "x 10.96.0.9"]);
    let root = world.dir.path().display();
    assert_eq!(
        world.diagnostics(),
        [format!(
            "Service shop/web: metadata.name: is also defined in {root}/z.yaml: document 1, \
             {root}/dir/a.yaml: document 1: the definition in {root}/dir/b.yaml: document 2 counts"
        )]
    );
    world.remove("dir/b.yaml");
    world.poll();
    assert_eq!(world.services(), ["web 10.96.0.2"]);
    world.remove("dir/a.yaml");
    world.poll();
    assert_eq!(world.services(), ["web 10.96.0.1"]);
    assert!(world.diagnostics().is_empty());
}

#[test]
fn a_file_given_twice_defines_nothing_twice() {
    let mut world = World::new(&["", "a.yaml"]);
    world.write("a.yaml", service("web", 1));
    world.poll();
    assert_eq!(world.services(), ["web 10.96.0.1"]);
    assert!(world.diagnostics().is_empty());
}

#[test]
fn diagnostics_go_when_a_service_is_served_no_longer_or_is_gone() {
    let mut world = World::new(&[""]);
    let sticky = service("web", 1).replace("spec: {", "spec: {sessionAffinity: Cookie, ");
    for (file, text) in [
        ("a.yaml", Some(sticky.replace("10.96.0.1", "None"))),
        ("a.yaml", None),
    ] {
        world.write(file, &sticky);
        world.poll();
        assert_eq!((world.services().len(), world.diagnostics().len()), (1, 1));
        match text {
            Some(text) => world.write(file, text),
            None => world.remove(file),
        }
        world.poll();
        assert_eq!((world.services().len(), world.diagnostics().len()), (0, 0));
    }
}

#[test]
fn the_first_load_names_every_broken_file() {
    let mut world = World::new(&["", "missing.yaml"]);
    world.write("a.yaml", "kind: [");
    world.write("b.yaml", service("web", 1));
    world.write("c.json", "{");
    let error = world.source.load().unwrap_err();
    let files: Vec<_> = error
        .rejected
        .iter()
        .map(|rejected| rejected.file.file_name().unwrap())
        .collect();
    assert_eq!(files, ["a.yaml", "c.json", "missing.yaml"]);
    let message = error.to_string();
    assert_eq!(message.lines().count(), 4, "{message}");
    assert!(
        message.contains("c.json: document 1: is not valid JSON: "),
        "{message}"
    );
    assert!(
        message.contains("missing.yaml: cannot be read: No such file"),
        "{message}"
    );
}

#[test]
fn json_and_yaml_of_a_real_cluster_mean_the_same() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data");
    let state = |files: &[&str]| -> NodeState {
        let paths = files.iter().map(|file| data.join(file)).collect();
        proxy_model::compute("node-a", load_once(paths).unwrap())
    };
    let yaml = state(&["cluster-mixed.yaml"]);
    assert!(yaml.services.len() > 15, "{}", yaml.services.len());
    assert_eq!(yaml, state(&["cluster-mixed.json"]));
}

/// Nothing that a file can hold makes the loader panic, and what it accepts it accepts again.
fn read_without_panic(bytes: &[u8], extension: &str) {
    let path = PathBuf::from(format!("fuzz.{extension}"));
    let first = object::read_file(&path, bytes);
    assert_eq!(first, object::read_file(&path, bytes));
    if let Ok(objects) = first {
        let path = path.as_path();
        Merged::default().replace(objects.iter().map(|object| (path, object)));
    }
}

/// Parts of manifests, right and wrong, to be put together at random.
const FRAGMENTS: &[&str] = &[
    "---\n",
    "apiVersion: v1\n",
    "kind: Service\n",
    "kind: List\n",
    "items:\n",
    "- ",
    "  ",
    "spec:\n",
    "metadata: {name: a}\n",
    "ports: [{port: 80}]\n",
    "clusterIP: 10.0.0.1\n",
    "null",
    "~",
    "[",
    "]",
    "{",
    "}",
    ": ",
    "&a ",
    "*a\n",
    "<<: *a\n",
    "!!binary ",
    "|\n",
    ">-\n",
    "\"",
    "'",
    "#",
    "%YAML 1.2\n",
    "...\n",
    "? ",
    "\t",
    "\r\n",
    "\u{feff}",
    "\u{0}",
    "99999999999999999999",
    ".inf",
    "kind: EndpointSlice\n",
    "apiVersion: discovery.k8s.io/v1\n",
    "endpoints: [{addresses: []}]\n",
    "addressType: IPv4\n",
    "💥",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        read_without_panic(&bytes, "yaml");
        read_without_panic(&bytes, "json");
    }

    #[test]
    fn arbitrary_fragments_never_panic(
        fragments in prop::collection::vec(prop::sample::select(FRAGMENTS), 0..40),
    ) {
        read_without_panic(fragments.concat().as_bytes(), "yaml");
    }

    #[test]
    fn mutated_manifests_never_panic(
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..30_usize, any::<u8>()), 1..6),
    ) {
        let mut text = String::new();
        for octet in 0..4 {
            write!(text, "{}", service("web", octet)).unwrap();
        }
        text += "---\n{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv6,\n\
                 metadata: {name: a, labels: {kubernetes.io/service-name: web}},\n\
                 endpoints: [{addresses: [fd00::1], conditions: {ready: true}}], ports: [{port: 1}]}\n";
        let mut bytes = text.into_bytes();
        for (at, removed, inserted) in edits {
            let at = at.index(bytes.len());
            let end = bytes.len().min(at + removed);
            bytes.splice(at..end, [inserted]);
        }
        read_without_panic(&bytes, "yaml");
    }
}
