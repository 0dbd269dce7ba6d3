//! How `run` says why it stopped: what reads a JSON log never meets a line that is none.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// `run` with manifests that are not there, and `arguments`.
fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_proxy-agent"))
        .args(["run", "--node-name=n", "--manifests=missing.yaml"])
        .args(arguments)
        .env_remove("RUST_LOG")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn stderr(output: &Output) -> &str {
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    std::str::from_utf8(&output.stderr).unwrap()
}

#[test]
fn a_json_log_ends_with_the_error_as_json() {
    // Not a terminal, so JSON unless text is asked for.
    for arguments in [&[][..], &["--log-format=json"], &["--log-level=error"]] {
        let output = run(arguments);
        let lines: Vec<Value> = stderr(&output)
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let last = lines.last().unwrap();
        assert_eq!(last["level"], "ERROR");
        assert_eq!(last["fields"]["message"], "stopped");
        let error = last["fields"]["error"].as_str().unwrap();
        assert!(error.contains("missing.yaml"), "{error}");
    }
}

#[test]
fn several_mistakes_are_one_line_of_json() {
    let output = run(&["--map-size=SLOTS", "--map-size=NOTHING=1"]);
    let line: Value = serde_json::from_str(stderr(&output)).unwrap();
    let error = line["fields"]["error"].as_str().unwrap();
    assert!(
        error.contains("SLOTS") && error.contains("NOTHING"),
        "{error}"
    );
}

#[test]
fn a_text_log_ends_with_a_plain_error() {
    let output = run(&["--log-format=text"]);
    let said = stderr(&output);
    assert!(said.starts_with("proxy-agent: "), "{said}");
    assert!(said.contains("missing.yaml"), "{said}");
}

#[test]
fn an_error_is_told_even_if_nothing_may_be_logged() {
    for level in ["off", "proxy_model=info"] {
        let output = run(&["--log-format=json", "--log-level", level]);
        let said = stderr(&output);
        assert!(said.starts_with("proxy-agent: "), "{said}");
        assert!(said.contains("missing.yaml"), "{said}");
    }
}

#[test]
fn before_logging_starts_the_error_is_plain() {
    let output = run(&["--log-format=json", "--log-level=proxy_agent=loud"]);
    let said = stderr(&output);
    assert!(said.starts_with("proxy-agent: --log-level"), "{said}");
}
