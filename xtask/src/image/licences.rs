//! The licences of what is in a program: one page, on which each text stands once, with the names of
//! what it applies to.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::parts::{Key, Part};

/// How the names of files begin that hold licences, in capitals.
const BEGINNINGS: &[&str] = &[
    "LICENSE",
    "LICENCE",
    "COPYING",
    "COPYRIGHT",
    "NOTICE",
    "UNLICENSE",
];

/// Something that is linked and no crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Library {
    /// What it is called.
    pub(crate) name: &'static str,
    /// Its version, where that is known.
    pub(crate) version: Option<String>,
    /// Under which licences, as SPDX writes it.
    pub(crate) licence: &'static str,
    /// Where the text is.
    pub(crate) texts: Vec<PathBuf>,
}

/// Whom a text is for.
type Texts = BTreeMap<String, BTreeSet<String>>;

/// The page, for crates and what is linked besides. `apache` is the text of Apache-2.0.
pub(crate) fn page(
    parts: &BTreeMap<Key, Part>,
    libraries: &[Library],
    apache: &Path,
) -> Result<String> {
    let mut texts = Texts::new();
    for part in parts.values() {
        let (name, version) = &part.key;
        let said = format!("{name} {version} ({})", part.licence);
        let files = texts_of(part, parts, apache)?;
        add(&mut texts, &said, &files)?;
    }
    for library in libraries {
        let version = library.version.as_deref().unwrap_or_default();
        let said = format!("{} {version} ({})", library.name, library.licence);
        add(&mut texts, &said.replace("  ", " "), &library.texts)?;
    }
    Ok(written(&texts))
}

fn add(texts: &mut Texts, name: &str, files: &[PathBuf]) -> Result<()> {
    for file in files {
        let bytes = fs::read(file).with_context(|| format!("reading {}", file.display()))?;
        // Names in old ones are in other encodings.
        let text = String::from_utf8_lossy(&bytes).replace("\r\n", "\n");
        let text = text.trim_matches('\n').to_owned();
        texts.entry(text).or_default().insert(name.to_owned());
    }
    Ok(())
}

/// The files that hold a crate's licences: its own; else, as some workspaces pack none, those of
/// another crate of the same repository; else the common text of Apache-2.0.
fn texts_of(part: &Part, parts: &BTreeMap<Key, Part>, apache: &Path) -> Result<Vec<PathBuf>> {
    let own = in_dir(&part.dir)?;
    if !own.is_empty() {
        return Ok(own);
    }
    let alike = parts.values().filter(|other| {
        other.repository.is_some()
            && other.repository == part.repository
            && other.licence == part.licence
    });
    for other in alike {
        let found = in_dir(&other.dir)?;
        if !found.is_empty() {
            return Ok(found);
        }
    }
    ensure!(
        part.licence.contains("Apache-2.0") && !part.licence.contains(" AND "),
        "{} {} comes without the text of its licence, {}",
        part.key.0,
        part.key.1,
        part.licence
    );
    Ok(vec![apache.to_owned()])
}

fn in_dir(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries = fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("reading {}", dir.display()))?;
        let name = entry.file_name().to_string_lossy().to_ascii_uppercase();
        if BEGINNINGS.iter().any(|begin| name.starts_with(begin)) && entry.path().is_file() {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

fn written(texts: &Texts) -> String {
    let mut page = String::from(
        "What is linked into this program, and the licences of each: where one names several, it \
         is\nused under any that it allows. Source code: the registry of Rust crates, by name and \
         version.\n",
    );
    // By the first name, so that a reader finds something.
    let mut texts: Vec<_> = texts.iter().collect();
    texts.sort_by_key(|(text, names)| (names.first(), *text));
    for (text, names) in texts {
        let rule = "=".repeat(80);
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        write!(page, "\n{rule}\n{}\n{rule}\n\n{text}\n", names.join("\n"))
            .expect("a String takes all text");
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(dir: &Path, name: &str, licence: &str, text: Option<&str>) -> (Key, Part) {
        let dir = dir.join(name);
        fs::create_dir_all(&dir).unwrap();
        if let Some(text) = text {
            fs::write(dir.join("license-MIT.txt"), text).unwrap();
        }
        let key = (name.to_owned(), "1.0.0".to_owned());
        let part = Part {
            key: key.clone(),
            licence: licence.to_owned(),
            description: None,
            repository: Some("a place".to_owned()),
            dir,
            checksum: None,
            linked: true,
            uses: BTreeSet::new(),
        };
        (key, part)
    }

    #[test]
    fn a_text_stands_once_and_a_crate_without_one_takes_that_of_its_repository() {
        let dir = tempfile::tempdir().unwrap();
        let apache = dir.path().join("apache");
        fs::write(&apache, "Apache License").unwrap();
        let parts = BTreeMap::from([
            part(dir.path(), "one", "MIT", Some("\r\nmay be used\r\n")),
            part(dir.path(), "two", "MIT", None),
            part(dir.path(), "three", "Apache-2.0", None),
        ]);
        let page = page(&parts, &[], &apache).unwrap();
        assert_eq!(page.matches("may be used").count(), 1, "{page}");
        assert!(
            page.contains("one 1.0.0 (MIT)\ntwo 1.0.0 (MIT)\n"),
            "{page}"
        );
        assert!(page.contains("three 1.0.0 (Apache-2.0)\n"), "{page}");
        let alone = BTreeMap::from([part(dir.path(), "two", "MIT", None)]);
        let said = super::page(&alone, &[], &apache).unwrap_err().to_string();
        assert!(said.starts_with("two 1.0.0 comes without"), "{said}");
    }
}
