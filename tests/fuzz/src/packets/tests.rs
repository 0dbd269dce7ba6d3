//! The committed inputs pass, and are those that are made here, with what a fuzzer found.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
};

use super::{run, seeds, step::Step};

/// How the name of an input begins that a fuzzer found: it stays, so that it is tried for ever.
const FOUND: &str = "found-";

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/packets")
}

fn inputs() -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(corpus()).unwrap().map(|entry| {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        (name, fs::read(entry.path()).unwrap())
    });
    files.collect()
}

#[test]
fn every_seed_passes() {
    for (name, input) in inputs() {
        println!("{name}");
        run(&input);
    }
}

/// With `CULVERT_BLESS=1` they are written.
#[test]
fn the_corpus_has_one_of_each_kind() {
    let made = seeds::all().into_iter().map(|(name, steps)| {
        let bytes: Vec<u8> = steps.iter().flat_map(Step::bytes).collect();
        (name, bytes)
    });
    let made: BTreeMap<_, _> = made.collect();
    if env::var_os("CULVERT_BLESS").is_some() {
        fs::create_dir_all(corpus()).unwrap();
        for name in inputs().into_keys().filter(|name| !name.starts_with(FOUND)) {
            fs::remove_file(corpus().join(name)).unwrap();
        }
        for (name, bytes) in &made {
            fs::write(corpus().join(name), bytes).unwrap();
        }
    }
    let mut inputs = inputs();
    inputs.retain(|name, _| !name.starts_with(FOUND));
    let names = [&inputs, &made].map(|all| all.keys().collect::<Vec<_>>());
    assert_eq!(names[0], names[1], "CULVERT_BLESS=1 writes them");
    for (name, bytes) in made {
        assert_eq!(inputs[&name], bytes, "{name}: CULVERT_BLESS=1 writes it");
    }
}

#[test]
fn any_bytes_pass() {
    crate::noise().for_each(|bytes| run(&bytes));
}
