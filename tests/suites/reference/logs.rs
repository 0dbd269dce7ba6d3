//! The table of log messages, `docs/logs.md`, against the calls in the code: what is said at level info
//! or above is in the table, at that level and with those fields, and nothing else is.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// A message in some place: level, and the fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Said {
    levels: BTreeSet<String>,
    fields: BTreeSet<String>,
    /// Whether it must be in the table.
    due: bool,
}

/// Where the code is.
const SOURCES: [&str; 3] = [
    "proxy-agent/src",
    "proxy-agent/api/src",
    "proxy-agent/backends",
];
/// What a backend finds by itself need not be in the table; what is must be so.
const NEED_NOT_BE_THERE: &str = "/backends/";
/// The macro's own documentation, and what other programs say.
const NOT_OURS: [&str; 2] = ["/logging/lists.rs", "/api/src/driver"];
/// Made from parts, or said by more than one macro: their line in the table is looked after by hand.
const BY_HAND: [&str; 4] = [
    "SIGTERM: stopping; the dataplane stays",
    "SIGTERM: stopping before anything is served; what is in the kernel stays",
    "serving",
    "synced",
];

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// All of a directory, without tests.
fn sources(directory: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.display().to_string();
        if path.is_dir() {
            if !name.ends_with("/tests") {
                sources(&path, found);
            }
        } else if path.extension().is_some_and(|end| end == "rs") && !name.ends_with("/tests.rs") {
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            found.push((name, code.to_owned()));
        }
    }
}

/// What stands between the parentheses of a macro's call, split at its commas.
fn arguments(call: &str) -> Vec<String> {
    let (mut all, mut one, mut depth, mut quoted) = (Vec::new(), String::new(), 1, false);
    let mut characters = call.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' if quoted => {
                one.push(character);
                one.extend(characters.next());
                continue;
            }
            '"' => quoted = !quoted,
            '(' | '[' | '{' if !quoted => depth += 1,
            ')' | ']' | '}' if !quoted => depth -= 1,
            ',' if !quoted && depth == 1 => {
                all.push(std::mem::take(&mut one));
                continue;
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
        one.push(character);
    }
    all.push(one);
    let all = all.iter().map(|one| one.trim().to_owned());
    all.filter(|one| !one.is_empty()).collect()
}

/// The name of the field that an argument is.
fn field(argument: &str) -> String {
    let name = argument.split(" = ").next().unwrap_or_default();
    name.trim_start_matches(['%', '?']).trim().to_owned()
}

fn said_by_the_code() -> BTreeMap<String, Said> {
    let (mut files, mut all) = (Vec::new(), BTreeMap::<String, Said>::new());
    for directory in SOURCES {
        sources(&root().join(directory), &mut files);
    }
    for (name, code) in files {
        if NOT_OURS.iter().any(|part| name.contains(part)) {
            continue;
        }
        for level in ["info", "warn", "error"] {
            for call in code.split(&format!("tracing::{level}!(")).skip(1) {
                let mut arguments = arguments(call);
                let message = arguments.pop().unwrap_or_default();
                // A message is on one line, and so is what is looked for.
                let message = message.trim_matches('"').replace("\\\n", "");
                let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
                let said = all.entry(message).or_default();
                said.due |= !name.contains(NEED_NOT_BE_THERE);
                said.levels.insert(level.to_owned());
                said.fields.extend(arguments.iter().map(|one| field(one)));
            }
        }
    }
    all
}

/// What stands in code quotes.
fn quoted(cell: &str) -> Vec<String> {
    cell.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

fn said_by_the_page() -> BTreeMap<String, Said> {
    let page = fs::read_to_string(root().join("docs/logs.md")).unwrap();
    let mut all = BTreeMap::<String, Said>::new();
    for line in page.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<_> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [level, messages, _, fields] = cells[..] else {
            panic!("four cells: {line}");
        };
        if level == "level" || level == "---" {
            continue;
        }
        for message in quoted(messages) {
            let said = all.entry(message).or_default();
            said.levels.insert(level.to_owned());
            let words = quoted(fields);
            let is_name = |one: &String| {
                one.bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
            };
            said.fields.extend(words.into_iter().filter(is_name));
        }
    }
    all
}

#[test]
fn the_table_of_log_messages_tells_what_the_code_says() {
    let (code, page) = (said_by_the_code(), said_by_the_page());
    assert!(
        code.len() > 60 && page.len() > 60,
        "{} {}",
        code.len(),
        page.len()
    );
    let mut problems = Vec::new();
    for (message, said) in &code {
        match page.get(message) {
            None if message.contains('{') || !said.due => {}
            None => problems.push(format!("not in the table: {message} {said:?}")),
            Some(told) => {
                if told.levels != said.levels && !BY_HAND.contains(&message.as_str()) {
                    problems.push(format!(
                        "{message}: {:?}, not {:?}",
                        said.levels, told.levels
                    ));
                }
                for field in said.fields.difference(&told.fields) {
                    problems.push(format!("{message}: field {field} is not told"));
                }
            }
        }
    }
    for (message, told) in &page {
        let Some(said) = code.get(message) else {
            if !BY_HAND.contains(&message.as_str()) && told.levels != ["debug".to_owned()].into() {
                problems.push(format!("nobody says: {message}"));
            }
            continue;
        };
        // What stands in quotes may be a value, too.
        for field in told.fields.difference(&said.fields) {
            if !VALUES.contains(&field.as_str()) && !BY_HAND.contains(&message.as_str()) {
                problems.push(format!("{message}: there is no field {field}"));
            }
        }
    }
    assert_eq!(problems, [""; 0]);
}

/// Values of fields that the table names.
const VALUES: [&str; 13] = [
    "none",
    "auto",
    "ebpf",
    "missing",
    "unexpected",
    "changed",
    "detached",
    "replaced",
    "unpinned",
    "state",
    "repaired",
    "true",
    "false",
];
