//! Which files a given path stands for.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The path itself unless it is a directory; otherwise the manifests directly in it, by name.
/// The error completes the sentence "path: …".
pub(super) fn list(path: &Path) -> Result<Vec<PathBuf>, String> {
    let metadata = fs::metadata(path).map_err(|error| format!("cannot be read: {error}"))?;
    if !metadata.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let list = || -> std::io::Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(path)? {
            let file = entry?.path();
            // Follows links: in a mounted ConfigMap every file is one. A dangling link is listed,
            // so that reading it reports it.
            let is_dir = fs::metadata(&file).is_ok_and(|metadata| metadata.is_dir());
            if is_manifest(&file) && !is_dir {
                files.push(file);
            }
        }
        files.sort();
        Ok(files)
    };
    list().map_err(|error| format!("cannot be listed: {error}"))
}

/// By name, as `kubectl apply -f DIRECTORY` decides it. Hidden files are what editors keep
/// beside the file they edit.
fn is_manifest(path: &Path) -> bool {
    let hidden = path
        .file_name()
        .is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
    let extension = path.extension().and_then(|extension| extension.to_str());
    !hidden && matches!(extension, Some("yaml" | "yml" | "json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_stands_for_the_manifests_directly_in_it() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            "b.yml",
            "a.yaml",
            "c.json",
            ".hidden.yaml",
            "d.txt",
            "e.yaml~",
            "yaml",
        ] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        fs::create_dir(dir.path().join("sub.yaml")).unwrap();
        std::os::unix::fs::symlink("a.yaml", dir.path().join("link.yaml")).unwrap();
        std::os::unix::fs::symlink("nowhere", dir.path().join("dangling.yaml")).unwrap();
        let files = list(dir.path()).unwrap();
        let names: Vec<_> = files.iter().map(|file| file.file_name().unwrap()).collect();
        assert_eq!(
            names,
            ["a.yaml", "b.yml", "c.json", "dangling.yaml", "link.yaml"]
        );
    }

    #[test]
    fn any_other_path_stands_for_itself_whatever_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(".manifest");
        fs::write(&file, "").unwrap();
        assert_eq!(list(&file).unwrap(), [file]);
        let missing = list(&dir.path().join("missing.yaml")).unwrap_err();
        assert!(
            missing.starts_with("cannot be read: No such file"),
            "{missing}"
        );
    }
}
