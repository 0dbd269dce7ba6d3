//! Scenario files: cluster objects in steps, and what must be true after each.
//!
//! One file is one behaviour; its path says which, and the list of files is the list of what
//! works. The same files are run by several witnesses (see `tests/README.md` for the format):
//!
//! ```text
//! scenarios/<feature>/<behaviour>.txt ──┬──> scenarios_model   the state sections, and probes
//!                                       │                      and packets by the oracle
//!                                       ├──> scenarios_render  the sections of backends
//!                                       ├──> scenarios_traced  packets, by the rendered rules
//!                                       └──> traffic           the probes, by the real agent
//! ```
//!
//! This file owns what a scenario is; [`document`] its text, [`settings`], [`probe`], [`packets`] and
//! [`layered`] its lines, [`objects`] which addresses need servers, [`sources`] who dials, [`judge`]
//! what the oracle says of it, [`traffic`] real traffic, [`batch`] that of many scenarios through few
//! agents.

pub mod batch;
pub mod document;
pub mod judge;
pub mod layered;
pub mod objects;
pub mod packets;
pub mod probe;
pub mod settings;
pub mod sources;
pub mod subject;
pub mod traffic;

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, anyhow, bail};

pub use document::{Document, Section};
pub use layered::LayeredLine;
pub use packets::PacketLine;
pub use probe::{Outcome, Probe};
pub use settings::Settings;

/// Set to 1 to rewrite expected sections with what was seen. Probes are never rewritten.
pub const BLESS_VARIABLE: &str = "CULVERT_BLESS";

/// A scenario file, understood.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// `feature/behaviour`.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// The node and its configuration.
    pub settings: Settings,
    /// What happens, in order.
    pub steps: Vec<Step>,
    document: Document,
}

/// One change of the cluster and what must be true after it.
#[derive(Debug, Clone, Default)]
pub struct Step {
    /// Manifest files written or deleted, in order.
    pub changes: Vec<Change>,
    /// All manifest files after the changes.
    pub files: BTreeMap<String, String>,
    /// Expected texts: the state table as `state`, and by the name of a backend what it renders.
    pub texts: BTreeMap<String, String>,
    /// What traffic must do.
    pub probes: Vec<Probe>,
    /// What must become of packets.
    pub packets: Vec<PacketLine>,
    /// What must come of probes where socket hooks lie over a packet backend.
    pub layered: Vec<LayeredLine>,
    /// Index in the document of the last section of [`Step::changes`].
    last_change: usize,
    /// Indexes in the document of the expected sections, by name.
    expected: BTreeMap<String, usize>,
}

/// A change of one manifest file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Written, or replaced.
    Apply {
        /// Name of the file.
        file: String,
        /// Its content.
        content: String,
    },
    /// Deleted.
    Delete {
        /// Name of the file.
        file: String,
    },
}

impl Step {
    /// Writes all manifest files into `dir`, an empty directory.
    pub fn write(&self, dir: &Path) -> Result<()> {
        for (file, content) in &self.files {
            let path = dir.join(file);
            fs::write(&path, content)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }
}

/// Sections that people write. Any other one that is not about a file is what a backend of that name
/// renders: which there are, `scenarios_render` knows.
const BY_PEOPLE: [&str; 3] = ["probes", "packets", "layered"];

impl Scenario {
    /// Every scenario file, ordered by name.
    pub fn all() -> Result<Vec<Self>> {
        let root = root();
        let mut paths = Vec::new();
        let mut open = vec![root.clone()];
        while let Some(dir) = open.pop() {
            let entries =
                fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))?;
            for entry in entries {
                let path = entry
                    .with_context(|| format!("cannot list {}", dir.display()))?
                    .path();
                if path.is_dir() {
                    open.push(path);
                } else if path.extension().is_some_and(|extension| extension == "txt") {
                    paths.push(path);
                }
            }
        }
        paths.sort();
        if paths.is_empty() {
            bail!("there is no scenario file under {}", root.display());
        }
        paths.iter().map(|path| Self::read(&root, path)).collect()
    }

    fn read(root: &Path, path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path)
            .with_context(|| format!("cannot read the scenario {}", path.display()))?;
        let name = path.strip_prefix(root).unwrap_or(path).with_extension("");
        let name = name.display().to_string();
        Self::parse(name, path.to_owned(), &text).with_context(|| path.display().to_string())
    }

    /// Understands the text of a scenario file.
    pub fn parse(name: String, path: PathBuf, text: &str) -> Result<Self> {
        let document = Document::parse(text);
        if document.intro.trim().is_empty() {
            bail!("the file does not say what it shows: begin with `# WHAT AND WHY`");
        }
        let mut scenario = Self {
            name,
            path,
            settings: Settings::default(),
            steps: Vec::new(),
            document,
        };
        for (index, section) in scenario.document.clone().sections.iter().enumerate() {
            scenario
                .add(index, section)
                .with_context(|| format!("line {}: section {:?}", section.line, section.header))?;
        }
        if scenario.steps.is_empty() {
            bail!("nothing happens in it: there is no `-- apply FILE --` section");
        }
        Ok(scenario)
    }

    fn add(&mut self, index: usize, section: &Section) -> Result<()> {
        let (kind, argument) = section.words();
        match (kind, argument) {
            ("settings", None) if index == 0 => {
                self.settings = Settings::parse(&section.body)?;
                Ok(())
            }
            ("settings", None) => bail!("settings come first"),
            ("apply", Some(file)) => {
                let content = section.body.clone();
                self.change(
                    index,
                    Change::Apply {
                        file: file.to_owned(),
                        content,
                    },
                )
            }
            ("delete", Some(file)) => self.change(
                index,
                Change::Delete {
                    file: file.to_owned(),
                },
            ),
            (_, None) => {
                let step = self
                    .steps
                    .last_mut()
                    .ok_or_else(|| anyhow!("nothing happened yet"))?;
                if step.expected.insert(kind.to_owned(), index).is_some() {
                    bail!("this step has such a section already");
                }
                let body = section.body.trim_end().to_owned();
                match kind {
                    "probes" => step.probes = probe::parse_lines(&section.body, section.line)?,
                    "packets" => step.packets = packets::parse_lines(&section.body, section.line)?,
                    "layered" => step.layered = layered::parse_lines(&section.body, section.line)?,
                    _ => drop(step.texts.insert(kind.to_owned(), body)),
                }
                Ok(())
            }
            _ => bail!(
                "there is no such section; there are: settings, apply FILE, delete FILE, state, \
                 probes, packets, layered, and the names of backends"
            ),
        }
    }

    fn change(&mut self, index: usize, change: Change) -> Result<()> {
        // Expectations end a step: the next change begins another.
        if self
            .steps
            .last()
            .is_none_or(|step| !step.expected.is_empty())
        {
            let files = self
                .steps
                .last()
                .map(|step| step.files.clone())
                .unwrap_or_default();
            self.steps.push(Step {
                files,
                ..Step::default()
            });
        }
        let step = self
            .steps
            .last_mut()
            .expect("one has just been made if there was none");
        match &change {
            Change::Apply { file, content } => {
                step.files.insert(file.clone(), content.clone());
            }
            Change::Delete { file } => {
                step.files
                    .remove(file)
                    .ok_or_else(|| anyhow!("there is no file {file}"))?;
            }
        }
        step.changes.push(change);
        step.last_change = index;
        Ok(())
    }

    /// Compares what a step produced with its section `kind` (`state`, or a backend's name).
    pub fn compare(&self, step: usize, kind: &str, actual: &str) -> Result<()> {
        let expected = self.steps[step].texts.get(kind).map(String::as_str);
        if expected == Some(actual.trim_end()) {
            return Ok(());
        }
        let difference = document::difference(expected.unwrap_or_default(), actual);
        bail!(
            "step {}: the section `{kind}` does not match ({BLESS_VARIABLE}=1 rewrites it)\n\
             {difference}",
            step + 1
        )
    }

    /// Rewrites sections with what was seen: of each kind, one text per step. A step without a
    /// `state` section gets one; that of a backend is only rewritten where there is one.
    pub fn bless(&self, seen: &[(&str, Vec<String>)]) -> Result<()> {
        let mut document = self.document.clone();
        for (kind, texts) in seen {
            assert!(
                !BY_PEOPLE.contains(kind),
                "{kind} sections are written by people"
            );
            for (step, text) in self.steps.iter().zip(texts) {
                if let Some(index) = step.expected.get(*kind) {
                    document.sections[*index].replace(text);
                }
            }
        }
        let states = seen.iter().filter(|(kind, _)| *kind == "state");
        for (kind, texts) in states {
            // From the end, so that an insertion does not move the places of those still to come.
            for (step, text) in self.steps.iter().zip(texts).rev() {
                if !step.expected.contains_key(*kind) {
                    let new = Section::new(kind, text);
                    document.sections.insert(step.last_change + 1, new);
                }
            }
        }
        let text = document.to_string();
        if text == self.document.to_string() {
            return Ok(());
        }
        // By rename: another witness may be reading it.
        let staged = self
            .path
            .with_extension(format!("txt.{}", std::process::id()));
        fs::write(&staged, text)
            .and_then(|()| fs::rename(&staged, &self.path))
            .with_context(|| format!("cannot rewrite {}", self.path.display()))
    }
}

/// Whether expected sections are to be rewritten.
pub fn is_blessing() -> bool {
    env::var(BLESS_VARIABLE).is_ok_and(|value| value == "1")
}

/// Where the scenario files are.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios")
}

#[cfg(test)]
mod tests;
