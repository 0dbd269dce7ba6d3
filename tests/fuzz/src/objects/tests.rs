//! The seeds pass, and say what they are meant to say.

use super::*;

/// Every file under `dir`, which is in the folder of all tests.
fn files(dir: &str) -> Vec<std::path::PathBuf> {
    let mut open = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(dir)];
    let mut files = Vec::new();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        } else {
            files.push(path);
        }
    }
    files
}

#[test]
fn every_seed_passes() {
    let seeds = [files("scenarios"), files("data")].concat();
    assert!(seeds.len() > 50, "{seeds:?}");
    for seed in seeds {
        println!("{}", seed.display());
        run(&fs::read(seed).unwrap());
    }
}

#[test]
fn a_scenario_is_its_changes_of_files() {
    let text = "# About.\n\n-- settings --\nnode-name: x\n-- apply a/../b.yaml --\nkind: A\n\n\
        -- state --\nnothing\n-- apply c.json --\n{}\n-- delete a/../b.yaml --\n";
    let change = |file: &str, content| FileChange {
        file: file.to_owned(),
        content,
    };
    let expected = [
        change("abyaml.yaml", Some("kind: A\n\n")),
        change("cjson.json", Some("{}\n")),
        change("abyaml.yaml", None),
    ];
    assert_eq!(changes(text), expected);
    assert_eq!(
        changes("kind: A\n"),
        [change("objectsyaml.yaml", Some("kind: A\n"))]
    );
}

/// What is not even text, or nothing at all, is rejected and no more.
#[test]
fn garbage_passes() {
    for data in [
        &b""[..],
        b"\xff\xfe\0",
        b"-- apply x --\n\xc3\x28",
        b"{",
        b"-- delete x --",
    ] {
        run(data);
    }
}
