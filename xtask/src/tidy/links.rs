//! Rules about links in Markdown files: those to files lead somewhere.

use std::path::{Component, Path, PathBuf};

use super::{File, Finding};

/// Checks every link to a file, with `exists` for paths relative to the workspace root.
pub(super) fn check(file: &File, exists: impl Fn(&Path) -> bool) -> Vec<Finding> {
    if !file.has_extension("md") {
        return Vec::new();
    }
    let dir = Path::new(&file.path).parent().unwrap_or(Path::new(""));
    let mut findings = Vec::new();
    for (number, target) in links(&file.text) {
        let path = target.split('#').next().unwrap_or_default();
        if path.is_empty() || path.contains("://") || path.starts_with("mailto:") {
            continue;
        }
        if resolve(dir, path).is_none_or(|path| !exists(&path)) {
            let text = format!("line {number}: the link to `{target}` leads nowhere");
            findings.push(Finding::Error(text));
        }
    }
    findings
}

/// Targets of inline links with their line numbers, code blocks left out.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut in_code = false;
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        for rest in line.split("](").skip(1) {
            found.extend(rest.split([')', ' ']).next().map(|target| (number, target)));
        }
    }
    found
}

/// The path relative to the root, or `None` if it leads out of the workspace.
fn resolve(dir: &Path, target: &str) -> Option<PathBuf> {
    let mut path = PathBuf::new();
    for part in dir.join(target).components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::CurDir => {}
            Component::ParentDir => path.pop().then_some(())?,
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(text: &str) -> usize {
        let file = File {
            path: "docs/guide/a.md".to_owned(),
            text: text.to_owned(),
        };
        check(&file, |path| {
            path == Path::new("docs/b.md") || path == Path::new("docs")
        })
        .len()
    }

    #[test]
    fn links_are_resolved_from_the_file_they_are_in() {
        assert_eq!(
            findings("see [b](../b.md) and [all](..) and [part](../b.md#part)"),
            0
        );
        assert_eq!(findings("see [b](b.md)"), 1);
        assert_eq!(findings("see [out](../../../b.md)"), 1);
    }

    #[test]
    fn other_sites_and_code_are_left_alone() {
        assert_eq!(
            findings("[a](https://example.org/b) [c](#here) [d](mailto:x@example.org)"),
            0
        );
        assert_eq!(findings("```\nlist[0](missing)\n```\n"), 0);
    }
}
