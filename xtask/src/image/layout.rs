//! An image in the layout of the Open Container Initiative (image-spec 1.1): layers, configuration,
//! manifest and index, each named by its digest; written as an archive or as a directory.
//!
//! Four small documents. A crate for them would bring thirty others into every build of xtask.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::root::{self, Root};

const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const CONFIGURATION: &str = "application/vnd.oci.image.config.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// What tells a directory in this layout from others.
const MARK: &str = "oci-layout";

/// What is said of an image.
#[derive(Clone, Debug)]
pub(crate) struct Description<'a> {
    /// The processor.
    pub(crate) architecture: &'a str,
    /// Seconds since 1970.
    pub(crate) created: u64,
    /// Its name in an index.
    pub(crate) tag: String,
    /// What is executed.
    pub(crate) entrypoint: &'a str,
    /// Where programs are looked for.
    pub(crate) path: &'a str,
    /// By the names that the Initiative gives them.
    pub(crate) annotations: BTreeMap<&'static str, String>,
}

/// An image, ready to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Files by their paths.
    files: BTreeMap<String, Vec<u8>>,
    /// What the image is known by.
    pub(crate) digest: String,
    /// Bytes of its layers, as they are sent.
    pub(crate) size: usize,
}

impl Layout {
    /// Makes the image of these layers, the lowest first.
    pub(crate) fn of(description: &Description<'_>, layers: &[&Root]) -> Result<Self> {
        let mut layout = Self {
            files: BTreeMap::new(),
            digest: String::new(),
            size: 0,
        };
        let (mut descriptors, mut unpacked) = (Vec::new(), Vec::new());
        for layer in layers {
            let tar = layer.tar(description.created)?;
            unpacked.push(digest(&tar));
            let packed = root::gzip(&tar)?;
            layout.size += packed.len();
            descriptors.push(layout.blob(LAYER, packed));
        }
        let configuration = configuration(description, &unpacked)?;
        let configuration = layout.blob(CONFIGURATION, written(&configuration));
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": configuration,
            "layers": descriptors,
            "annotations": description.annotations,
        });
        let manifest = written(&manifest);
        layout.digest = digest(&manifest);
        let mut manifest = layout.blob(MANIFEST, manifest);
        manifest["platform"] = json!({ "architecture": description.architecture, "os": "linux" });
        manifest["annotations"] = json!({
            "org.opencontainers.image.ref.name": description.tag,
            // By which containerd knows what it imports: a name that nobody can be asked for.
            "io.containerd.image.name": format!("localhost/culvert:{}", description.tag),
        });
        let index = json!({
            "schemaVersion": 2,
            "mediaType": INDEX,
            "manifests": [manifest],
        });
        layout
            .files
            .insert("index.json".to_owned(), written(&index));
        let mark = written(&json!({ "imageLayoutVersion": "1.0.0" }));
        layout.files.insert(MARK.to_owned(), mark);
        Ok(layout)
    }

    /// Adds what is named by its digest, and returns what refers to it.
    fn blob(&mut self, media_type: &str, bytes: Vec<u8>) -> Value {
        let digest = digest(&bytes);
        let refers = json!({ "mediaType": media_type, "digest": digest, "size": bytes.len() });
        let path = format!("blobs/{}", digest.replace(':', "/"));
        self.files.insert(path, bytes);
        refers
    }

    /// Writes it as an archive, in place of what was there.
    pub(crate) fn write_archive(&self, file: &Path, time: u64) -> Result<()> {
        let mut root = Root::default();
        for (path, bytes) in &self.files {
            root.file(path, bytes.clone());
        }
        replace(file, &root.tar(time)?)
    }

    /// Writes it as a directory, in place of the image that was there.
    pub(crate) fn write_directory(&self, dir: &Path) -> Result<()> {
        let taken = dir
            .read_dir()
            .is_ok_and(|mut entries| entries.next().is_some());
        ensure!(
            !taken || dir.join(MARK).is_file(),
            "writing the image to {}: something else is there; name an empty directory, or one that \
             an image was written to",
            dir.display()
        );
        // The index last: whoever reads meanwhile finds the old image.
        let mut files: Vec<_> = self.files.iter().collect();
        files.sort_by_key(|(path, _)| path.as_str() == "index.json");
        for (path, bytes) in files {
            let file = dir.join(path);
            let above = file.parent().unwrap_or(dir);
            fs::create_dir_all(above).with_context(|| format!("making {}", above.display()))?;
            replace(&file, bytes)?;
        }
        Ok(())
    }
}

fn configuration(description: &Description<'_>, unpacked: &[String]) -> Result<Value> {
    let created = jiff::Timestamp::from_second(i64::try_from(description.created)?)?.to_string();
    let history: Vec<_> = unpacked
        .iter()
        .map(|_| json!({ "created": created, "created_by": "cargo xtask image" }))
        .collect();
    Ok(json!({
        "created": created,
        "architecture": description.architecture,
        "os": "linux",
        "config": {
            "User": "0:0",
            "Env": [format!("PATH={}", description.path)],
            "Entrypoint": [description.entrypoint],
            "WorkingDir": "/",
            "StopSignal": "SIGTERM",
            "Labels": description.annotations,
        },
        "rootfs": { "type": "layers", "diff_ids": unpacked },
        "history": history,
    }))
}

/// How documents are written: keys in order, no white space.
fn written(document: &Value) -> Vec<u8> {
    document.to_string().into_bytes()
}

/// `sha256:…`
pub(crate) fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hexadecimal(&Sha256::digest(bytes)))
}

/// Two digits for each byte.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    let mut digits = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        write!(digits, "{byte:02x}").expect("a String takes all text");
    }
    digits
}

/// Puts a file in place at once.
pub(crate) fn replace(file: &Path, bytes: &[u8]) -> Result<()> {
    let mut draft = file.as_os_str().to_owned();
    draft.push(format!(".{}", std::process::id()));
    fs::write(&draft, bytes).with_context(|| format!("writing {}", file.display()))?;
    fs::rename(&draft, file).with_context(|| format!("putting {} in place", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(bytes: &[u8]) -> Layout {
        let mut root = Root::default();
        root.program("usr/bin/a", bytes.to_vec());
        let description = Description {
            architecture: "amd64",
            created: 1_700_000_000,
            tag: "1".to_owned(),
            entrypoint: "/usr/bin/a",
            path: "/usr/bin",
            annotations: BTreeMap::from([("org.opencontainers.image.version", "1".to_owned())]),
        };
        Layout::of(&description, &[&root]).unwrap()
    }

    #[test]
    fn the_same_image_is_the_same_bytes_and_another_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let files = ["a", "b", "c"].map(|name| dir.path().join(name));
        for (file, content) in files.iter().zip([b"1", b"1", b"2"]) {
            layout(content).write_archive(file, 7).unwrap();
        }
        let [a, b, c] = files.map(|file| fs::read(file).unwrap());
        assert!(a == b && a != c);
    }

    #[test]
    fn a_directory_with_something_else_in_it_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (new, taken) = (dir.path().join("new"), dir.path().join("taken"));
        for _ in 0..2 {
            layout(b"1").write_directory(&new).unwrap();
        }
        assert!(new.join("index.json").is_file());
        fs::create_dir(&taken).unwrap();
        fs::write(taken.join("thesis.tex"), "").unwrap();
        let said = layout(b"1")
            .write_directory(&taken)
            .unwrap_err()
            .to_string();
        assert!(said.contains("something else is there"), "{said}");
    }
}
