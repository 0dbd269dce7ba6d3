//! The wire format: the generated code is what the proto says, and the proto breaks nobody who was
//! built against the committed descriptor. `CULVERT_BLESS=1` writes both, but never a breakage.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "wire/breakage.rs"]
mod breakage;

use std::{env, fs, path::PathBuf};

use prost::Message as _;
use prost_types::FileDescriptorSet;

const PROTO: &str = "culvert/node/v1/node.proto";
const PACKAGE: &str = "culvert.node.v1";

fn here(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn blessing() -> bool {
    env::var_os("CULVERT_BLESS").is_some()
}

/// The proto as it is now, with its comments.
fn compiled() -> FileDescriptorSet {
    protox::compile([PROTO], [here("proto")]).unwrap()
}

/// Our file alone, without comments and positions: what is on the wire.
fn ours(mut set: FileDescriptorSet) -> FileDescriptorSet {
    set.file.retain(|file| file.package() == PACKAGE);
    for file in &mut set.file {
        file.source_code_info = None;
    }
    set
}

#[test]
fn the_generated_code_is_fresh() {
    let made = tempfile::tempdir().unwrap();
    tonic_prost_build::configure()
        .out_dir(made.path())
        .server_mod_attribute(".", "#[cfg(feature = \"server\")]")
        .compile_fds(compiled())
        .unwrap();
    let made = fs::read_to_string(made.path().join(format!("{PACKAGE}.rs"))).unwrap();
    let path = here("src/wire").join(format!("{PACKAGE}.rs"));
    if blessing() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, made).unwrap();
        return;
    }
    let present = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        present == made,
        "src/wire/{PACKAGE}.rs is not what proto/{PROTO} says: run `cargo xtask docs`"
    );
}

#[test]
fn nobody_who_uses_the_committed_descriptor_is_broken() {
    let now = ours(compiled());
    let path = here("proto").join(format!("{PACKAGE}.binpb"));
    let committed = fs::read(&path).unwrap_or_default();
    let before = FileDescriptorSet::decode(&*committed).unwrap();
    let broken = breakage::between(&before, &now);
    assert!(
        broken.is_empty(),
        "proto/{PROTO} breaks clients that exist; add beside what is there, or begin another \
         package version:\n{}",
        broken.join("\n")
    );
    if blessing() {
        fs::write(path, now.encode_to_vec()).unwrap();
        return;
    }
    assert!(
        before == now,
        "proto/{PACKAGE}.binpb is not what proto/{PROTO} says: run `cargo xtask docs`"
    );
}
