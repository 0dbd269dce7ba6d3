//! Which test programs the workspace has, and which of them run where.

use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::cargo::{Object, cargo};
use crate::progress::shell_line;

/// The package of the suites.
pub(crate) const PACKAGE: &str = "proxy-tests";

/// Suites that need no root and load no program.
const UNPRIVILEGED: &[&str] = &[
    "api_faults",
    "kube_proxy",
    "reference",
    "scenarios_model",
    "scenarios_render",
    "scenarios_traced",
];

/// Suites that depend on the kernel: loading, traffic through the socket hooks, and conntrack.
const ON_OTHER_KERNELS: &[&str] = &[
    "adopt",
    "conntrack",
    "leftovers",
    "load",
    "nftables",
    "repair",
    "restart",
    "switch",
    "take_over",
    "traffic",
];

/// A package of the workspace and its integration test programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Package {
    /// Its name.
    pub(crate) name: String,
    /// The names of its test programs.
    pub(crate) suites: Vec<String>,
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
    packages_in(&metadata).with_context(|| format!("`{line}` printed something unexpected"))
}

fn packages_in(metadata: &Value) -> Option<Vec<Package>> {
    let wanted = metadata.get("workspace_default_members")?.as_array()?;
    let mut packages = Vec::new();
    for package in metadata.get("packages")?.as_array()? {
        if !wanted.contains(package.get("id")?) {
            continue;
        }
        let mut suites = Vec::new();
        for target in package.get("targets")?.as_array()? {
            if target
                .get("kind")?
                .as_array()?
                .iter()
                .any(|kind| kind == "test")
            {
                suites.push(target.get("name")?.as_str()?.to_owned());
            }
        }
        packages.push(Package {
            name: package.get("name")?.as_str()?.to_owned(),
            suites,
        });
    }
    Some(packages)
}

/// Every test program that needs neither root nor BPF.
pub(crate) fn quick(packages: &[Package]) -> Vec<&str> {
    let suites = packages.iter().flat_map(|package| {
        let privileged =
            |suite: &&String| package.name != PACKAGE || UNPRIVILEGED.contains(&suite.as_str());
        package.suites.iter().filter(privileged)
    });
    suites.map(String::as_str).collect()
}

/// The suites to run on other kernels, those of `filters` only if there are any.
pub(crate) fn for_other_kernels<'a>(
    packages: &'a [Package],
    filters: &[String],
) -> Result<Vec<&'a str>> {
    let suites = packages.iter().filter(|package| package.name == PACKAGE);
    let suites = suites
        .flat_map(|package| &package.suites)
        .map(String::as_str);
    let chosen: Vec<_> = suites
        .filter(|suite| match filters {
            [] => ON_OTHER_KERNELS.contains(suite),
            some => some.iter().any(|filter| filter == suite),
        })
        .collect();
    if chosen.is_empty() {
        bail!(
            "there is no suite {} to run on another kernel",
            filters.join(", ")
        );
    }
    Ok(chosen)
}

/// The cargo arguments that select packages and suites by name.
pub(crate) fn selection(packages: &[Package], filters: &[String]) -> Result<Vec<String>> {
    let mut arguments = Vec::new();
    for filter in filters {
        if packages.iter().any(|package| package.name == *filter) {
            arguments.extend(["--package".to_owned(), filter.clone()]);
        } else if packages
            .iter()
            .any(|package| package.suites.contains(filter))
        {
            arguments.extend(["--test".to_owned(), filter.clone()]);
        } else {
            let known = packages
                .iter()
                .flat_map(|p| std::iter::once(&p.name).chain(&p.suites));
            let known: Vec<_> = known.map(String::as_str).collect();
            bail!(
                "there is no package or suite `{filter}`; there are {}",
                known.join(", ")
            );
        }
    }
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace() -> Vec<Package> {
        let package = |name: &str, suites: &[&str]| Package {
            name: name.to_owned(),
            suites: suites.iter().map(|suite| (*suite).to_owned()).collect(),
        };
        vec![
            package("proxy-model", &["equal"]),
            package(PACKAGE, &["traffic", "reference", "limits"]),
        ]
    }

    #[test]
    fn quick_tests_leave_out_privileged_suites_only() {
        assert_eq!(quick(&workspace()), ["equal", "reference"]);
    }

    #[test]
    fn other_kernels_run_what_depends_on_the_kernel() {
        assert_eq!(for_other_kernels(&workspace(), &[]).unwrap(), ["traffic"]);
        let limits = ["limits".to_owned()];
        assert_eq!(
            for_other_kernels(&workspace(), &limits).unwrap(),
            ["limits"]
        );
        assert!(for_other_kernels(&workspace(), &["none".to_owned()]).is_err());
    }

    #[test]
    fn filters_name_packages_or_suites() {
        let filters = ["proxy-model".to_owned(), "reference".to_owned()];
        let arguments = selection(&workspace(), &filters).unwrap();
        assert_eq!(
            arguments,
            ["--package", "proxy-model", "--test", "reference"]
        );
        let said = selection(&workspace(), &["trafic".to_owned()])
            .unwrap_err()
            .to_string();
        assert!(
            said.contains("there are proxy-model, equal, proxy-tests, traffic"),
            "{said}"
        );
    }

    #[test]
    fn this_workspace_is_read() {
        let packages = packages().unwrap();
        assert!(packages.iter().any(|package| package.name == "xtask"));
        assert!(!packages.iter().any(|package| package.name == "proxy-ebpf"));
    }
}
