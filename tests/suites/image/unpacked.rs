//! Unpacks an image with Debian's tar alone, and checks on the way that everything is what its
//! digest says.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;

/// Names the directory of images.
const IMAGES: &str = "CULVERT_IMAGES";

/// An image in a temporary directory.
pub struct Image {
    dir: TempDir,
    /// Its name in the index.
    pub tag: String,
    /// Its configuration.
    pub configuration: Value,
    /// Its manifest.
    pub manifest: Value,
    /// What its manifest is known by.
    pub digest: String,
}

/// Where images are.
pub fn images() -> PathBuf {
    let set = std::env::var_os(IMAGES);
    set.map_or_else(
        || panic!("{IMAGES} is not set: run this suite by `cargo xtask test image`"),
        PathBuf::from,
    )
}

/// The file of a variant with this end.
pub fn file_of(variant: &str, end: &str) -> PathBuf {
    let version = env!("CARGO_PKG_VERSION");
    images().join(format!("culvert-{version}{variant}-amd64.{end}"))
}

impl Image {
    /// Unpacks a variant: `-tools`, or the plain one, which is nothing.
    pub fn unpack(variant: &str) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("culvert-image-")
            .tempdir()
            .unwrap();
        let layout = dir.path().join("layout");
        untar(&file_of(variant, "tar"), &layout);
        let mark = read(&layout.join("oci-layout"));
        assert_eq!(mark["imageLayoutVersion"], "1.0.0");
        let index = read(&layout.join("index.json"));
        let [entry] = &index["manifests"].as_array().unwrap()[..] else {
            panic!("one image: {index}");
        };
        assert_eq!(entry["platform"]["architecture"], "amd64");
        let manifest = read(&blob(&layout, entry));
        let configuration = read(&blob(&layout, &manifest["config"]));
        let root = dir.path().join("root");
        fs::create_dir(&root).unwrap();
        let layers = manifest["layers"].as_array().unwrap();
        let unpacked = configuration["rootfs"]["diff_ids"].as_array().unwrap();
        assert_eq!(layers.len(), unpacked.len());
        for (layer, id) in layers.iter().zip(unpacked) {
            let layer = blob(&layout, layer);
            let tar = dir.path().join("layer.tar");
            let gunzip = Command::new("gzip")
                .args(["--decompress", "--stdout"])
                .stdin(fs::File::open(&layer).unwrap())
                .stdout(fs::File::create(&tar).unwrap())
                .status();
            assert!(gunzip.unwrap().success());
            assert_eq!(Value::from(digest(&tar)), *id);
            untar(&tar, &root);
        }
        Self {
            tag: text(&entry["annotations"]["org.opencontainers.image.ref.name"]),
            digest: text(&entry["digest"]),
            configuration,
            manifest,
            dir,
        }
    }

    /// Where its root is.
    pub fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    /// Bytes that are sent to a node.
    pub fn size(&self) -> u64 {
        let layers = self.manifest["layers"].as_array().unwrap();
        layers
            .iter()
            .map(|layer| layer["size"].as_u64().unwrap())
            .sum()
    }

    /// Everything in it that is a file or a link, with its permissions.
    pub fn files(&self) -> BTreeMap<String, u32> {
        let mut files = BTreeMap::new();
        let mut dirs = vec![self.root()];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(&dir).unwrap() {
                let path = entry.unwrap().path();
                let meta = path.symlink_metadata().unwrap();
                if meta.is_dir() {
                    dirs.push(path);
                } else {
                    use std::os::unix::fs::MetadataExt as _;
                    assert_eq!((meta.uid(), meta.gid()), (0, 0), "{}", path.display());
                    let name = path.strip_prefix(self.root()).unwrap();
                    files.insert(name.display().to_string(), meta.mode());
                }
            }
        }
        files
    }
}

pub fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// The JSON in a file.
pub fn read(file: &Path) -> Value {
    let text = fs::read_to_string(file).unwrap_or_else(|error| {
        panic!("{}: {error}", file.display());
    });
    serde_json::from_str(&text).unwrap()
}

/// The file that a descriptor refers to, which is what that says.
fn blob(layout: &Path, descriptor: &Value) -> PathBuf {
    let named = text(&descriptor["digest"]);
    let file = layout.join("blobs").join(named.replace(':', "/"));
    assert_eq!(digest(&file), named);
    assert_eq!(file.metadata().unwrap().len(), descriptor["size"]);
    file
}

fn digest(file: &Path) -> String {
    let sum = Command::new("sha256sum").arg(file).output().unwrap();
    assert!(sum.status.success(), "{}", file.display());
    let line = String::from_utf8(sum.stdout).unwrap();
    format!("sha256:{}", line.split(' ').next().unwrap())
}

fn untar(archive: &Path, dir: &Path) {
    fs::create_dir_all(dir).unwrap();
    let tar = Command::new("tar")
        .args(["--extract", "--numeric-owner", "--preserve-permissions"])
        .arg("--directory")
        .arg(dir)
        .arg("--file")
        .arg(archive)
        .stdin(Stdio::null())
        .status();
    assert!(tar.unwrap().success(), "{}", archive.display());
}
