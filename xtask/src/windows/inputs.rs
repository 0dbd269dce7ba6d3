//! What is asked of both programs: manifests of the tests, and questions about them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Where manifests come from, relative to the workspace root.
const CLUSTER: &str = "tests/data/cluster-mixed.yaml";
const CLUSTER_JSON: &str = "tests/data/cluster-mixed.json";
const DIRECTORY: &str = "tests/demo";
const SCENARIOS: &str = "tests/scenarios";

/// Arguments for both programs.
pub(super) type Case = Vec<String>;

/// All questions. What scenario files apply is written to `scratch`: one file for each feature,
/// which then holds more contradictions than any cluster.
pub(super) fn cases(root: &Path, scratch: &Path) -> Result<Vec<Case>> {
    let mut sources = [CLUSTER, CLUSTER_JSON, DIRECTORY]
        .map(PathBuf::from)
        .to_vec();
    sources.extend(features(&root.join(SCENARIOS), scratch)?);
    let mut cases = vec![words("version")];
    for source in &sources {
        for question in ["state", "state --output json", "render --backend ebpf"] {
            cases.push(about(question, source));
        }
    }
    for question in [
        "explain --from 10.244.0.5 --to 10.96.0.10:53/udp",
        "explain --from 10.244.0.5 --to 10.96.0.10:53/udp --path socket --output json",
        "explain --from 192.0.2.1 --to 10.96.0.11:1/tcp --in-interface eth0",
    ] {
        cases.push(about(question, &sources[0]));
    }
    // Exit codes of mistakes are compared too.
    cases.push(about("state", Path::new("tests/data/not-there.yaml")));
    cases.push(words("explain --from nowhere --to 10.96.0.10:53/udp"));
    Ok(cases)
}

fn words(text: &str) -> Case {
    text.split(' ').map(str::to_owned).collect()
}

fn about(question: &str, manifests: &Path) -> Case {
    let mut case = words(question);
    case.extend(words("--node-name node-a --manifests"));
    case.push(manifests.display().to_string());
    case
}

/// Writes what the scenarios of each feature apply to one file; returns those files. One each,
/// because what the program says of a file in a directory has the system's own separator in it.
fn features(scenarios: &Path, scratch: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for feature in sorted(scenarios)? {
        let name = feature.file_name().context("a feature has a name")?;
        let file = scratch.join(name).with_extension("yaml");
        let mut manifests = Vec::new();
        for scenario in sorted(&feature)? {
            let text = fs::read_to_string(&scenario)
                .with_context(|| format!("reading {}", scenario.display()))?;
            manifests.extend(applied(&text));
        }
        fs::write(&file, manifests.join("---\n"))
            .with_context(|| format!("writing {}", file.display()))?;
        files.push(file);
    }
    Ok(files)
}

fn sorted(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect())
        .with_context(|| format!("listing {}", directory.display()));
    let mut entries: Vec<PathBuf> = entries?;
    entries.sort();
    Ok(entries)
}

/// The manifests that a scenario file applies, in order.
fn applied(scenario: &str) -> Vec<String> {
    let mut manifests: Vec<String> = Vec::new();
    let mut inside = false;
    for line in scenario.lines() {
        if let Some(section) = line.strip_prefix("-- ") {
            inside = section.starts_with("apply ");
            if inside {
                manifests.push(String::new());
            }
        } else if let (true, Some(manifest)) = (inside, manifests.last_mut()) {
            manifest.push_str(line);
            manifest.push('\n');
        }
    }
    manifests
}

#[cfg(test)]
mod tests {
    use xtask::paths;

    use super::*;

    #[test]
    fn what_a_scenario_applies_is_found() {
        let text = "# why\n\n-- apply a.yaml --\nkind: A\n\n-- state --\nnone\n\n-- apply b.yaml --\nkind: B\n";
        assert_eq!(applied(text), ["kind: A\n\n", "kind: B\n"]);
    }

    #[test]
    fn every_feature_is_asked_about() {
        let scratch = tempfile::tempdir().unwrap();
        let cases = cases(paths::workspace_root(), scratch.path()).unwrap();
        for feature in sorted(&paths::workspace_root().join(SCENARIOS)).unwrap() {
            let file = scratch.path().join(feature.file_name().unwrap());
            let file = file.with_extension("yaml").display().to_string();
            let about = cases.iter().filter(|case| case.last() == Some(&file));
            assert_eq!(about.count(), 3, "{file}");
        }
    }
}
