//! Which test programs the workspace has, which suites are in them, and where those can run.
//!
//! A program of the package of suites holds several: its root names them as modules. Any other
//! program is one suite.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::cargo::{Object, cargo};
use crate::progress::shell_line;

/// The package of the suites.
pub(crate) const PACKAGE: &str = "proxy-tests";

/// Programs of suites that take root, minutes, or programs that few machines have.
const NOT_QUICK: &[&str] = &[
    "bench",
    "chart",
    "demo",
    "outside",
    "privileged",
    "scenarios_privileged",
];

/// A package of the workspace and its integration test programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Package {
    /// Its name.
    pub(crate) name: String,
    /// Its test programs.
    pub(crate) programs: Vec<Program>,
}

/// An integration test program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// Its name.
    pub(crate) name: String,
    /// The suites in it. The names of tests begin with theirs, except where there is one alone
    /// that is called as the program is.
    pub(crate) suites: Vec<String>,
}

impl Program {
    /// Whether it is a suite, instead of holding some.
    pub(crate) fn is_suite(&self) -> bool {
        self.suites == [self.name.as_str()]
    }
}

/// Suites of one program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part<'a> {
    /// The program.
    pub(crate) program: &'a Program,
    /// Those of its suites that are meant.
    pub(crate) suites: Vec<&'a str>,
}

/// What filters select.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selection<'a> {
    /// Packages, all of whose tests are meant.
    pub(crate) packages: Vec<&'a str>,
    /// Suites.
    pub(crate) parts: Vec<Part<'a>>,
}

/// The host's packages, as cargo knows them.
pub(crate) fn packages() -> Result<Vec<Package>> {
    let mut command = cargo("metadata", Object::Embedded);
    command
        .args(["--no-deps", "--format-version", "1"])
        .stderr(Stdio::inherit());
    let line = shell_line(&command);
    let output = command
        .output()
        .with_context(|| format!("starting `{line}`"))?;
    if !output.status.success() {
        bail!("`{line}` failed ({})", output.status);
    }
    let metadata: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("reading what `{line}` printed"))?;
    let found = packages_in(&metadata);
    let mut packages = found.with_context(|| format!("`{line}` printed something unexpected"))?;
    for (package, roots) in &mut packages {
        for (program, root) in package.programs.iter_mut().zip(roots) {
            if package.name == PACKAGE {
                program.suites = suites_of(&program.name, root)?;
            }
        }
    }
    Ok(packages.into_iter().map(|(package, _)| package).collect())
}

/// The packages, and where the roots of their test programs are.
fn packages_in(metadata: &Value) -> Option<Vec<(Package, Vec<String>)>> {
    let wanted = metadata.get("workspace_default_members")?.as_array()?;
    let mut packages = Vec::new();
    for package in metadata.get("packages")?.as_array()? {
        if !wanted.contains(package.get("id")?) {
            continue;
        }
        let (mut programs, mut roots) = (Vec::new(), Vec::new());
        for target in package.get("targets")?.as_array()? {
            let kinds = target.get("kind")?.as_array()?;
            if kinds.iter().any(|kind| kind == "test") {
                let name = target.get("name")?.as_str()?.to_owned();
                programs.push(Program {
                    suites: vec![name.clone()],
                    name,
                });
                roots.push(target.get("src_path")?.as_str()?.to_owned());
            }
        }
        let name = package.get("name")?.as_str()?.to_owned();
        packages.push((Package { name, programs }, roots));
    }
    Some(packages)
}

/// The suites of the program whose root is this file: the modules that are files beside it.
fn suites_of(program: &str, root: &str) -> Result<Vec<String>> {
    let text = fs::read_to_string(root).with_context(|| format!("reading {root}"))?;
    let beside = |name: &&str| {
        Path::new(root)
            .with_file_name(format!("{name}.rs"))
            .exists()
    };
    let suites: Vec<_> = modules(&text).filter(beside).map(str::to_owned).collect();
    Ok(if suites.is_empty() {
        vec![program.to_owned()]
    } else {
        suites
    })
}

/// The modules that a source file names, in files of their own.
fn modules(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'))
}

/// Every test program that needs neither root nor BPF.
pub(crate) fn quick(packages: &[Package]) -> Vec<&str> {
    let programs = packages.iter().flat_map(|package| &package.programs);
    let names = programs.map(|program| program.name.as_str());
    names.filter(|name| !NOT_QUICK.contains(name)).collect()
}

/// The suites called `names`, each in its program, in the order of the programs.
pub(crate) fn parts<'a>(packages: &'a [Package], names: &[&str]) -> Vec<Part<'a>> {
    let programs = packages.iter().flat_map(|package| &package.programs);
    let parts = programs.map(|program| {
        let suites = program.suites.iter().map(String::as_str);
        Part {
            program,
            suites: suites.filter(|suite| names.contains(suite)).collect(),
        }
    });
    parts.filter(|part| !part.suites.is_empty()).collect()
}

/// The packages and suites of these names; a program's name means all of its suites.
pub(crate) fn selection<'a>(packages: &'a [Package], filters: &[String]) -> Result<Selection<'a>> {
    let mut selection = Selection::default();
    let mut suites: Vec<&str> = Vec::new();
    for filter in filters {
        let mut programs = packages.iter().flat_map(|package| &package.programs);
        if let Some(package) = packages.iter().find(|package| package.name == *filter) {
            selection.packages.push(&package.name);
        } else if let Some(program) = programs.find(|program| program.name == *filter) {
            suites.extend(program.suites.iter().map(String::as_str));
        } else if !parts(packages, &[filter]).is_empty() {
            suites.push(filter);
        } else {
            let known = packages.iter().flat_map(|package| {
                let suites = package.programs.iter().flat_map(|program| &program.suites);
                std::iter::once(&package.name).chain(suites)
            });
            let known: Vec<_> = known.map(String::as_str).collect();
            bail!(
                "there is no package or suite `{filter}`; there are {}",
                known.join(", ")
            );
        }
    }
    selection.parts = parts(packages, &suites);
    Ok(selection)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace() -> Vec<Package> {
        let program = |name: &str, suites: &[&str]| Program {
            name: name.to_owned(),
            suites: suites.iter().map(|suite| (*suite).to_owned()).collect(),
        };
        vec![
            Package {
                name: "proxy-model".to_owned(),
                programs: vec![program("equal", &["equal"])],
            },
            Package {
                name: PACKAGE.to_owned(),
                programs: vec![
                    program("privileged", &["restart", "limits"]),
                    program("unprivileged", &["reference"]),
                ],
            },
        ]
    }

    #[test]
    fn quick_tests_leave_out_privileged_suites_only() {
        assert_eq!(quick(&workspace()), ["equal", "unprivileged"]);
    }

    #[test]
    fn filters_name_packages_programs_or_suites() {
        let workspace = workspace();
        let select = |filters: &[&str]| {
            let filters: Vec<_> = filters.iter().map(|&filter| filter.to_owned()).collect();
            selection(&workspace, &filters)
        };
        let selected = select(&["proxy-model", "limits", "reference"]).unwrap();
        assert_eq!(selected.packages, ["proxy-model"]);
        let shown: Vec<_> = selected
            .parts
            .iter()
            .map(|part| (part.program.name.as_str(), &*part.suites))
            .collect();
        assert_eq!(
            shown,
            [
                ("privileged", &["limits"][..]),
                ("unprivileged", &["reference"][..])
            ]
        );
        let all = select(&["privileged"]).unwrap();
        assert_eq!(all.parts[0].suites, ["restart", "limits"]);
        assert!(!all.parts[0].program.is_suite());
        let said = select(&["trafic"]).unwrap_err().to_string();
        assert!(
            said.contains("there are proxy-model, equal, proxy-tests, restart, limits"),
            "{said}"
        );
    }

    #[test]
    fn modules_of_a_root_are_suites() {
        let text = "//! Suites.\n\nmod adopt;\n#[path = \"x/y.rs\"]\nmod y;\nmod tests {\n";
        assert_eq!(modules(text).collect::<Vec<_>>(), ["adopt", "y"]);
    }

    #[test]
    fn this_workspace_is_read() {
        let packages = packages().unwrap();
        let names: Vec<_> = packages.iter().map(|package| &*package.name).collect();
        assert!(names.contains(&"xtask") && !names.contains(&"proxy-ebpf"));
        let programs = || packages.iter().flat_map(|package| &package.programs);
        for name in NOT_QUICK {
            assert!(programs().any(|program| program.name == *name), "{name}");
        }
        let suites: Vec<_> = programs().flat_map(|program| &program.suites).collect();
        for suite in [
            "demo",
            "outside",
            "reference",
            "scenarios_model",
            "traffic",
            "world",
        ] {
            assert!(suites.iter().any(|name| *name == suite), "{suites:?}");
        }
        assert!(!suites.iter().any(|name| *name == "trials"), "{suites:?}");
        let root = paths_of_suites();
        for file in fs::read_dir(&root).unwrap() {
            let path = file.unwrap().path();
            let Some(name) = path.file_stem().and_then(|name| name.to_str()) else {
                continue;
            };
            let is_root = programs().any(|program| program.name == name);
            let is_suite = suites.iter().any(|suite| *suite == name);
            assert!(
                path.is_dir() || is_root || is_suite,
                "{} is in no program: name it in the root of one",
                path.display()
            );
        }
    }

    fn paths_of_suites() -> std::path::PathBuf {
        xtask::paths::workspace_root().join("tests/suites")
    }
}
