//! Rules about the text of files.

use super::{File, Finding};

/// Above this a file needs a reason.
const LONG: usize = 500;

/// Above this a file is split.
const TOO_LONG: usize = 800;

/// Marks of unfinished work, in pieces so that this file passes its own rule.
const MARKS: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
];

/// How a file begins that nobody writes or reads by hand.
const GENERATED: &str = "// This file is @generated";

/// How a pointer becomes a reference.
const REFERENCES: &[&str] = &[".as_ref()", ".as_mut()", "&*", "&mut *"];

/// Marks a line whose reference is to what no other CPU and no other program reaches.
const EXCLUSIVE: &str = "// exclusive";

/// Checks that kernel programs make no reference to what a map gave: other CPUs write it.
pub(super) fn references(file: &File) -> Vec<Finding> {
    if !file.path.starts_with("proxy-ebpf/src/") {
        return Vec::new();
    }
    let lines = (1..).zip(file.text.lines());
    let code = lines.filter(|(_, line)| !line.trim_start().starts_with("//"));
    let making = code.filter(|(_, line)| {
        REFERENCES.iter().any(|how| line.contains(how)) && !line.contains(EXCLUSIVE)
    });
    let finding = |(number, _)| {
        let text = "a reference made of a pointer; use `proxy_common::shared` or copy";
        Finding::Error(format!("line {number}: {text}"))
    };
    making.map(finding).collect()
}

/// Checks length, header and marks.
pub(super) fn check(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    if file.has_extension("rs") && !file.text.starts_with(GENERATED) {
        let lines = file.text.lines().count();
        if lines > TOO_LONG {
            let text = format!("{lines} lines; split it ({TOO_LONG} is the most)");
            findings.push(Finding::Error(text));
        } else if lines > LONG {
            findings.push(Finding::Warning(format!(
                "{lines} lines; is this one idea?"
            )));
        }
        if !file.text.starts_with("//! ") {
            let text = "the first line is not `//! ` and what this file owns";
            findings.push(Finding::Error(text.to_owned()));
        }
    }
    if file.path != "Cargo.lock" {
        for (number, line) in (1..).zip(file.text.lines()) {
            for mark in MARKS.iter().filter(|mark| has_word(line, mark)) {
                let text = format!("line {number}: {mark}; finish it, or file an issue");
                findings.push(Finding::Error(text));
            }
        }
    }
    findings
}

fn has_word(line: &str, word: &str) -> bool {
    let mut parts = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    parts.any(|part| part == word)
}

/// Checks that no path of the machine at hand was written down: the workspace root, or a tool's
/// own folders in somebody's home.
pub(super) fn machine_paths(file: &File, root: &str, home: &str) -> Vec<Finding> {
    let mut traces = vec![format!("{root}/")];
    if home.len() > 1 {
        for folder in [".cache/", ".cargo/", ".rustup/"] {
            traces.push(format!("{home}/{folder}"));
        }
    }
    let mut findings = Vec::new();
    for (number, line) in (1..).zip(file.text.lines()) {
        if let Some(trace) = traces.iter().find(|trace| line.contains(trace.as_str())) {
            let text = format!("line {number}: `{trace}` is a path of one machine");
            findings.push(Finding::Error(text));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn long_files_are_warned_of_and_longer_ones_refused() {
        let of_length = |lines: usize| check(&file("a.rs", &"//! x\n".repeat(lines)));
        assert_eq!(of_length(LONG), []);
        assert!(matches!(of_length(LONG + 1)[..], [Finding::Warning(_)]));
        assert!(matches!(of_length(TOO_LONG + 1)[..], [Finding::Error(_)]));
        assert_eq!(check(&file("a.yaml", &"x\n".repeat(TOO_LONG + 1))), []);
    }

    #[test]
    fn rust_files_say_what_they_own() {
        assert_eq!(check(&file("a.rs", "//! Owns a.\n")), []);
        assert_eq!(check(&file("a.rs", "use b;\n")).len(), 1);
        assert_eq!(check(&file("a.rs", "")).len(), 1);
    }

    #[test]
    fn kernel_programs_make_no_references() {
        let text = "//! x\n// as &*pointer would\nlet peer = unsafe { &mut *pointer };\n";
        let found = references(&file("proxy-ebpf/src/a.rs", text));
        assert!(matches!(&found[..], [Finding::Error(text)] if text.starts_with("line 3: ")));
        assert_eq!(references(&file("proxy-agent/src/a.rs", text)), []);
    }

    #[test]
    fn marks_of_unfinished_work_are_found_as_words_only() {
        assert_eq!(
            check(&file("a.md", &format!("now {}: this", MARKS[0]))).len(),
            1
        );
        assert_eq!(
            check(&file("a.sh", &format!("mktemp {}{}", MARKS[2], MARKS[2]))),
            []
        );
    }

    #[test]
    fn paths_of_this_machine_are_found() {
        let text = "see /src/culvert/target and /home/u/.cargo/bin, not /home/u or /tmp\n";
        let found = machine_paths(&file("a.md", text), "/src/culvert", "/home/u");
        assert_eq!(found.len(), 1);
        assert_eq!(
            machine_paths(&file("a.md", "/tmp/x"), "/src/culvert", "/home/u"),
            []
        );
    }
}
