//! Parsing and blessing of scenario files.

use super::*;

const TEXT: &str = "\
# Shows something.

-- settings --
node-name: node-b

-- apply services.yaml --
kind: Service

-- apply slices.yaml --
kind: EndpointSlice

-- state --
old

-- probes --
node TCP 10.96.0.1:80 -> refused

-- packets --
192.0.2.1 10.96.0.1:80/TCP -> rejected

-- delete slices.yaml --
-- probes --
node TCP 10.96.0.1:80 -> untouched
";

fn parse(text: &str) -> Result<Scenario> {
    Scenario::parse(
        "feature/behaviour".to_owned(),
        PathBuf::from("/nonexistent"),
        text,
    )
}

fn texts(first: &str, second: &str) -> Vec<String> {
    vec![first.to_owned(), second.to_owned()]
}

#[test]
fn expectations_end_a_step() {
    let scenario = parse(TEXT).unwrap();
    assert_eq!(&*scenario.settings.model.node, "node-b");
    assert_eq!(scenario.steps.len(), 2);
    let [first, second] = &scenario.steps[..] else {
        panic!("two steps")
    };
    assert_eq!(
        first.files.keys().collect::<Vec<_>>(),
        ["services.yaml", "slices.yaml"]
    );
    assert_eq!(first.texts.get("state").map(String::as_str), Some("old"));
    assert_eq!((first.probes.len(), first.packets.len()), (1, 1));
    assert_eq!(
        second.changes,
        [Change::Delete {
            file: "slices.yaml".to_owned()
        }]
    );
    assert_eq!(second.files.keys().collect::<Vec<_>>(), ["services.yaml"]);
    assert_eq!(second.texts.get("state"), None);
}

#[test]
fn blessing_rewrites_and_adds_states_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("behaviour.txt");
    fs::write(&path, TEXT).unwrap();
    let scenario = Scenario::read(dir.path(), &path).unwrap();
    assert_eq!(scenario.name, "behaviour");
    scenario.compare(0, "state", "old\n").unwrap();
    let error = scenario.compare(0, "state", "new").unwrap_err().to_string();
    assert!(error.contains("- old\n+ new"), "{error}");
    scenario.compare(1, "state", "new").unwrap_err();

    scenario
        .bless(&[("state", texts("first\n", "second"))])
        .unwrap();
    let expected = TEXT.replace("old\n", "first\n").replace(
        "slices.yaml --\n-- probes",
        "slices.yaml --\n-- state --\nsecond\n\n-- probes",
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), expected);

    let scenario = Scenario::read(dir.path(), &path).unwrap();
    scenario.compare(1, "state", "second").unwrap();
    // There are no sections of backends to rewrite.
    let seen = ["one", "other"].map(|backend| (backend, texts("x", "y")));
    scenario.bless(&seen).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), expected);

    // There are now, and they are rewritten together.
    let two = expected.replace("-- packets", "-- one --\n\n-- other --\n\n-- packets");
    fs::write(&path, two).unwrap();
    let scenario = Scenario::read(dir.path(), &path).unwrap();
    scenario.bless(&seen).unwrap();
    let expected = expected.replace("-- packets", "-- one --\nx\n\n-- other --\nx\n\n-- packets");
    assert_eq!(fs::read_to_string(&path).unwrap(), expected);
}

#[test]
fn mistakes_are_named() {
    for (text, part) in [
        ("-- apply a.yaml --\n", "what it shows"),
        ("# x\n", "nothing happens"),
        ("# x\n-- state --\n", "nothing happened yet"),
        (
            "# x\n-- apply a --\n-- settings --\n",
            "settings come first",
        ),
        ("# x\n-- settings --\nzone: a\n", "no setting"),
        ("# x\n-- apply a --\n-- packets --\nnode\n", "line 4"),
        ("# x\n-- apply a --\n-- sate x --\n", "no such section"),
        ("# x\n-- apply a --\n-- state --\n-- state --\n", "already"),
        ("# x\n-- delete a --\n", "no file a"),
        ("# x\n-- apply a --\n-- probes --\nnode\n", "line 4"),
    ] {
        let error = format!("{:#}", parse(text).unwrap_err());
        assert!(error.contains(part), "{text:?}: {error}");
    }
}

#[test]
fn listeners_come_from_slices_of_every_step() {
    let text = "\
# x
-- apply a.yaml --
kind: List
items:
- kind: Service
  spec: {ports: [{port: 1}]}
- kind: EndpointSlice
  endpoints: [{addresses: [10.244.0.5]}]
  ports: [{port: 80}, {port: 53, protocol: UDP}, {port: 9, protocol: SCTP}, {name: none}]
-- state --
-- apply a.yaml --
kind: Service
---
kind: EndpointSlice
endpoints: [{addresses: [fd00::5]}, {addresses: [host.example]}]
ports: [{port: 80, protocol: TCP}]
";
    let listeners = objects::listeners(&parse(text).unwrap()).unwrap();
    let listeners: Vec<_> = listeners.iter().map(ToString::to_string).collect();
    assert_eq!(
        listeners,
        ["tcp:10.244.0.5:80", "tcp:[fd00::5]:80", "udp:10.244.0.5:53"]
    );
}
