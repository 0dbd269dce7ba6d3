//! Two programs, the same arguments: whether they print the same and end alike.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use xtask::paths;

use super::inputs::Case;
use crate::progress::shell_line;
use crate::tally::Tally;

/// What is left of a run.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    code: Option<i32>,
    printed: String,
    /// Shown, not compared: the texts of the system's own errors differ.
    said: String,
}

/// Asks both programs about every case; prints what differs. `Ok(false)` if something does.
pub(super) fn all(
    cases: &[Case],
    native: &Path,
    other: &dyn Fn(&[String]) -> Command,
    tally: &mut Tally,
) -> Result<bool> {
    let mut equal = true;
    for case in cases {
        let wanted = answer(Command::new(native).args(case))?;
        let found = answer(&mut other(case))?;
        match difference(&wanted, &found) {
            None => tally.passed += 1,
            Some(difference) => {
                tally.failed += 1;
                equal = false;
                println!("FAILED: proxy-agent {}\n{difference}", case.join(" "));
            }
        }
    }
    println!("{} questions asked of both programs", cases.len());
    Ok(equal)
}

fn answer(command: &mut Command) -> Result<Answer> {
    let output = command
        .current_dir(paths::workspace_root())
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("starting `{}`", shell_line(command)))?;
    Ok(Answer {
        code: output.status.code(),
        printed: String::from_utf8_lossy(&output.stdout).into_owned(),
        said: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// The first thing that differs, in words.
fn difference(wanted: &Answer, found: &Answer) -> Option<String> {
    if wanted.code != found.code {
        return Some(format!(
            "  here it ends with {:?}, there with {:?}: {}",
            wanted.code,
            found.code,
            found.said.trim_end()
        ));
    }
    if wanted.printed == found.printed {
        return None;
    }
    let (mut here, mut there) = (wanted.printed.split('\n'), found.printed.split('\n'));
    for number in 1.. {
        match (here.next(), there.next()) {
            (None, None) => break,
            (here, there) if here == there => {}
            (here, there) => {
                let (here, there) = (here.unwrap_or("(end)"), there.unwrap_or("(end)"));
                return Some(format!(
                    "  line {number}\n    here:  {here:?}\n    there: {there:?}"
                ));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(code: i32, printed: &str) -> Answer {
        Answer {
            code: Some(code),
            printed: printed.to_owned(),
            said: format!("as said on {code}"),
        }
    }

    #[test]
    fn the_first_line_that_differs_is_shown() {
        let wanted = answer(0, "a\nb\n");
        assert_eq!(difference(&wanted, &answer(0, "a\nb\n")), None);
        let said = difference(&wanted, &answer(0, "a\r\nb\r\n")).unwrap();
        assert!(
            said.contains("line 1") && said.contains(r#""a\r""#),
            "{said}"
        );
        let said = difference(&wanted, &answer(0, "a\nb\nc\n")).unwrap();
        assert!(said.contains(r#"there: "c""#), "{said}");
    }

    #[test]
    fn another_exit_code_is_shown_with_what_was_said() {
        let said = difference(&answer(0, ""), &answer(3, "")).unwrap();
        assert!(said.contains("as said on 3"), "{said}");
    }
}
