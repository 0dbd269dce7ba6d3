//! The rule that nothing is used of a machine but what set-up installs there, or Debian and rustup
//! have anyway: what tests and commands start, and what they read of packages, is in the table of
//! [`provisions`].

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};

use super::{File, Finding};
use crate::setup::needs;
use crate::setup::provisions::{self, From};

/// What stands before the name of a program in Rust.
const STARTS: &[&str] = &["Command::new(\"", "Tool(\"", "find_on_path(\""];

/// Words that are names of programs too, and here mean something else; the last ones are busybox's
/// own.
const ORDINARY: &[&str] = &[
    "GET", "HEAD", "POST", "apt", "as", "file", "node", "open", "patch", "route", "size",
    "strings", "time", "watch", "write", "init", "insmod",
];

/// Where command lines stand that users type on machines of theirs.
const OF_USERS: &str = "tests/suites/installed/documents.rs";

/// The table itself, where the names of packages stand as well.
const TABLE: &str = "xtask/src/setup/provisions.rs";

/// Where protobuf looks for what is its own.
const OF_PROTOBUF: &str = "import \"google/protobuf/";

/// Checks a file. `installed` are programs that this machine has and a bare one has not.
pub(super) fn check(file: &File, installed: &BTreeSet<String>) -> Vec<Finding> {
    let ours = ["tests/", "xtask/", ".ci/"]
        .iter()
        .any(|dir| file.path.starts_with(dir) && file.path != TABLE);
    let script = file.has_extension("sh") || file.path == ".ci/run";
    let seen_to = needs::seen_to(&file.path);
    let mut findings = Vec::new();
    for (number, line) in (1..).zip(file.text.lines()) {
        let mut names = BTreeSet::new();
        if file.has_extension("rs") && !line.trim_start().starts_with("//") {
            names.extend(started(line));
            if ours && file.path != OF_USERS {
                names.extend(first_words(line).filter(|word| installed.contains(*word)));
            }
        }
        if script && ours && !line.trim_start().starts_with('#') {
            names.extend(words(line).filter(|word| installed.contains(*word)));
        }
        names.retain(|name| !ORDINARY.contains(name));
        for name in names {
            match provisions::provider(name) {
                None => findings.push(undeclared(number, name)),
                Some(From::Plan(need)) if seen_to.is_some_and(|seen_to| !seen_to.has(need)) => {
                    findings.push(not_asked_for(number, name));
                }
                Some(_) => {}
            }
        }
        if file.has_extension("proto")
            && let Some(import) = line.strip_prefix(OF_PROTOBUF)
        {
            let name = format!("google/protobuf/{}", import.trim_end_matches(['"', ';']));
            if !provisions::declared_file(&name) {
                findings.push(undeclared(number, &name));
            }
        }
    }
    findings
}

fn undeclared(line: usize, name: &str) -> Finding {
    Finding::Error(format!(
        "line {line}: nothing sees to it that there is `{name}`: add it with its package to \
         {TABLE}"
    ))
}

fn not_asked_for(line: usize, name: &str) -> Finding {
    Finding::Error(format!(
        "line {line}: `{name}` is not installed for the command that runs this: say that it is \
         needed in xtask/src/setup/needs.rs, or do without"
    ))
}

/// Names of programs that a line of Rust starts or asks for. Those with a directory are of
/// somebody's own.
fn started(line: &str) -> impl Iterator<Item = &str> {
    let after = STARTS
        .iter()
        .flat_map(|start| line.split(start).skip(1))
        .filter_map(|rest| rest.split('"').next());
    after.filter(|name| is_word(name))
}

/// The first word of each string, which is where a command line begins.
fn first_words(line: &str) -> impl Iterator<Item = &str> {
    line.split('"')
        .skip(1)
        .filter_map(|text| text.split([' ', '\\']).next())
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| c.is_whitespace() || "\"'`$();|&".contains(c))
}

fn is_word(name: &str) -> bool {
    !name.is_empty()
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "+-_.".contains(c))
}

/// Programs that are here and in none of Debian's essential packages. None where there is no
/// dpkg to tell.
pub(super) fn installed() -> BTreeSet<String> {
    let essential = essential_files();
    if essential.is_empty() {
        return BTreeSet::new();
    }
    let entries = ["/usr/bin", "/usr/sbin"].map(fs::read_dir);
    let names = entries
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| !essential.contains(name)).collect()
}

/// The names of all files of essential packages.
fn essential_files() -> BTreeSet<String> {
    let ask = |arguments: &[&str]| {
        let output = Command::new("dpkg-query")
            .args(arguments)
            .stderr(Stdio::null())
            .output();
        output.map_or_else(
            |_| String::new(),
            |output| String::from_utf8_lossy(&output.stdout).into_owned(),
        )
    };
    let all = ask(&["--show", "--showformat=${Essential} ${Package}\n"]);
    let essential: Vec<_> = all
        .lines()
        .filter_map(|line| line.strip_prefix("yes "))
        .collect();
    if essential.is_empty() {
        return BTreeSet::new();
    }
    let files = ask(&[&["--listfiles"], &essential[..]].concat());
    files
        .lines()
        .filter_map(|path| Some(path.rsplit_once('/')?.1.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(path: &str, text: &str) -> Vec<String> {
        let installed = ["socat", "node", "ip", "bpftool"].map(str::to_owned).into();
        let file = File {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        let findings = check(&file, &installed).into_iter();
        findings.map(|finding| format!("{finding:?}")).collect()
    }

    #[test]
    fn a_program_that_nothing_installs_is_found_wherever_it_is_started() {
        for line in [
            "let it = Command::new(\"frobnicate\").status();",
            "const NEEDS: &[Need] = &[Need::Tool(\"ip\"), Need::Tool(\"frobnicate\")];",
            "let it = paths::find_on_path(\"frobnicate\");",
        ] {
            let said = said("proxy-agent/src/a.rs", line);
            assert_eq!(said.len(), 1, "{line}");
            assert!(said[0].contains("`frobnicate`"), "{said:?}");
        }
        assert_eq!(said("xtask/vm/a.sh", "exec socat -\n").len(), 1);
    }

    #[test]
    fn so_is_one_that_a_command_line_begins_with() {
        let line = "run(\"socat - tcp:10.0.0.1:80\", \"\");";
        assert_eq!(said("tests/suites/a.rs", line).len(), 1);
        assert_eq!(said("tests/suites/a.rs", "[\"socat\", \"-\"]").len(), 1);
        // The agent's own words are for people, and so are those of documents.
        assert!(said("proxy-agent/src/a.rs", line).is_empty());
        assert!(said(OF_USERS, line).is_empty());
    }

    #[test]
    fn what_is_declared_ordinary_or_only_mentioned_is_none() {
        for line in [
            "Command::new(\"ip\").args([\"node\", \"link\"])",
            "// once tried with Command::new(\"socat\")",
            "Command::new(program).arg(\"tcp:socat\")",
            "Command::new(\"/proc/self/exe\")",
        ] {
            assert!(said("tests/a.rs", line).is_empty(), "{line}");
        }
        assert!(said("xtask/a.sh", "# socat would do\nip link\n").is_empty());
    }

    #[test]
    fn what_a_command_does_not_install_is_not_used_in_what_it_runs() {
        let line = "let plugin = Command::new(\"protoc\").output();";
        let found = said("tests/demo/src/stage.rs", line);
        assert_eq!(found.len(), 1);
        assert!(
            found[0].contains("`protoc` is not installed for"),
            "{found:?}"
        );
        assert_eq!(said("tests/suites/restart.rs", line).len(), 1);
        assert!(said("tests/suites/outside.rs", line).is_empty());
        let keep = "let hint = \"bpftool map\";";
        assert_eq!(said("tests/demo/src/phases.rs", keep).len(), 1);
        assert!(said("tests/demo/src/look_around.rs", keep).is_empty());
    }

    #[test]
    fn messages_that_protobuf_brings_are_files_of_a_package() {
        let import = |name: &str| format!("import \"google/protobuf/{name}.proto\";\n");
        assert!(said("a.proto", &import("timestamp")).is_empty());
        assert_eq!(said("a.proto", &import("struct")).len(), 1);
        assert!(said("a.proto", "import \"own/a.proto\";\n").is_empty());
    }

    #[test]
    fn a_machine_knows_what_it_has_beyond_the_base() {
        let here = installed();
        assert!(!here.contains("sh") && !here.contains("tar"));
    }
}
