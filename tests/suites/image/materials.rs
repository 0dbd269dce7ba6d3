//! What an image says of its own materials: every crate, and the licence of each.

use std::{collections::BTreeMap, collections::BTreeSet, fs, process::Command};

use serde_json::Value;

use super::{
    is_root_here,
    unpacked::{Image, file_of, read, text},
};

/// Name and version of what `cargo tree` lists.
fn crates(package: &str, target: &str, edges: &str) -> BTreeSet<(String, String)> {
    let tree = Command::new(std::env::var_os("CARGO").unwrap())
        .args(["tree", "--locked", "--prefix", "none", "-p", package])
        .args(["-e", edges, "--target", target])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .output()
        .unwrap();
    assert!(tree.status.success(), "{tree:?}");
    let text = String::from_utf8(tree.stdout).unwrap();
    let crates: BTreeSet<_> = text
        .lines()
        .filter_map(|line| {
            let (name, rest) = line.split_once(" v")?;
            let version = rest.split(' ').next()?;
            Some((name.to_owned(), version.to_owned()))
        })
        .collect();
    assert!(crates.len() > 5, "{text}");
    crates
}

fn of_program(edges: &str) -> BTreeSet<(String, String)> {
    let mut all = crates("proxy-agent", "x86_64-unknown-linux-musl", edges);
    all.extend(crates("proxy-ebpf", "bpfel-unknown-none", edges));
    all
}

#[test]
fn the_bill_names_every_crate_that_is_linked_and_no_other() {
    if !is_root_here() {
        return;
    }
    let image = Image::unpack("");
    let bill = read(&image.root().join("usr/share/doc/culvert/sbom.cdx.json"));
    assert_eq!(bill, read(&file_of("", "cdx.json")), "the one beside it");
    assert_eq!(
        (&bill["bomFormat"], &bill["specVersion"]),
        (&"CycloneDX".into(), &"1.6".into())
    );
    let components = bill["components"].as_array().unwrap();
    let by_key: BTreeMap<(String, String), &Value> = components
        .iter()
        .filter(|one| one["bom-ref"].as_str().unwrap().starts_with("pkg:cargo/"))
        .map(|one| ((text(&one["name"]), text(&one["version"])), one))
        .collect();
    let names: BTreeSet<_> = by_key.keys().cloned().collect();
    assert_eq!(names, of_program("normal"));
    let linked = by_key.iter().filter(|(_, one)| one["scope"] == "required");
    let linked: BTreeSet<_> = linked.map(|(key, _)| key.clone()).collect();
    assert_eq!(linked, of_program("normal,no-proc-macro"));
    for name in ["std", "musl"] {
        assert!(components.iter().any(|one| one["name"] == name), "{name}");
    }
    for one in components {
        let licence = &one["licenses"][0]["expression"];
        assert!(
            licence.as_str().is_some_and(|text| !text.contains('/')),
            "{one}"
        );
    }
}

#[test]
fn every_licence_comes_with_its_text() {
    if !is_root_here() {
        return;
    }
    let image = Image::unpack("");
    let doc = image.root().join("usr/share/doc/culvert");
    let page = fs::read_to_string(doc.join("third-party-licences.txt")).unwrap();
    for (name, version) in of_program("normal,no-proc-macro") {
        assert!(page.contains(&format!("\n{name} {version} (")), "{name}");
    }
    let own = fs::read_to_string(doc.join("LICENSE")).unwrap();
    assert!(own.contains("Apache License"));
    assert!(doc.join("LICENSE-GPL-2.0").is_file());
}

#[test]
fn packages_of_debian_are_in_the_bill_with_their_copyright() {
    if !is_root_here() {
        return;
    }
    let image = Image::unpack("-tools");
    let bill = read(&image.root().join("usr/share/doc/culvert/sbom.cdx.json"));
    let components = bill["components"].as_array().unwrap();
    let packages = components.iter().filter(|one| {
        one["purl"]
            .as_str()
            .is_some_and(|purl| purl.starts_with("pkg:deb/"))
    });
    let packages: Vec<_> = packages.map(|one| text(&one["name"])).collect();
    for name in ["iptables", "libc6"] {
        assert!(packages.contains(&name.to_owned()), "{packages:?}");
    }
    for name in packages {
        let file = format!("usr/share/doc/{name}/copyright");
        assert!(image.root().join(&file).is_file(), "{file}");
    }
}
