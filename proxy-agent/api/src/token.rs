//! A file with a token, by which a client on `tcp://` shows that it is meant to be there. Never
//! shown, in no error and by no `Debug`.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use thiserror::Error;

/// Bytes of a file that is a token; more is something else.
const LONGEST: u64 = 4 << 10;

/// Why a file is of no use as a token. Holds nothing of what is in it.
#[derive(Debug, Error)]
#[error("cannot use the token file {path}: {problem}")]
pub struct TokenError {
    /// Which.
    pub path: PathBuf,
    /// Why not.
    pub problem: TokenProblem,
}

/// What is wrong with the file of a token.
#[derive(Debug, Error)]
pub enum TokenProblem {
    /// It cannot be read.
    #[error("{0}")]
    Unreadable(io::Error),
    /// What is in it can be no token.
    #[error("it must hold one line of printable characters without spaces, 4 KiB at most")]
    NoToken,
}

/// The token in the file at `path`, as often as it is asked for: whoever wrote it may replace it.
pub fn read(path: &Path) -> Result<String, TokenError> {
    let failed = |problem| TokenError {
        path: path.to_owned(),
        problem,
    };
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(LONGEST + 1).read_to_string(&mut text))
        .map_err(|error| failed(TokenProblem::Unreadable(error)))?;
    let token = text.trim();
    let fits = !token.is_empty() && text.len() as u64 <= LONGEST;
    if !fits || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(failed(TokenProblem::NoToken));
    }
    Ok(token.to_owned())
}

#[cfg(feature = "server")]
pub use self::kept::TokenFile;

#[cfg(feature = "server")]
mod kept {
    use std::{
        fmt,
        path::PathBuf,
        sync::{Mutex, PoisonError},
    };

    use subtle::ConstantTimeEq as _;

    use super::TokenError;

    /// The token that clients must show.
    pub struct TokenFile {
        path: PathBuf,
        last: Mutex<Last>,
    }

    struct Last {
        token: String,
        /// Why it was not read again, as far as it was told.
        told: Option<String>,
    }

    impl TokenFile {
        /// Reads it for the first time.
        pub fn open(path: PathBuf) -> Result<Self, TokenError> {
            let token = super::read(&path)?;
            let last = Mutex::new(Last { token, told: None });
            Ok(Self { path, last })
        }

        /// Whether `shown` is the token. Takes the same time whatever it is, its length apart. While
        /// the file cannot be read, the last token is it: it may just be being replaced.
        pub fn is(&self, shown: &str) -> bool {
            let read = super::read(&self.path);
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            match read.map_err(|error| error.to_string()) {
                Ok(token) => *last = Last { token, told: None },
                Err(reason) if last.told.as_ref() != Some(&reason) => {
                    tracing::warn!(reason, "the last token stays in use");
                    last.told = Some(reason);
                }
                Err(_) => {}
            }
            last.token.as_bytes().ct_eq(shown.as_bytes()).into()
        }
    }

    impl fmt::Debug for TokenFile {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_tuple("TokenFile").field(&self.path).finish()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_token_is_read_again_and_kept_while_there_is_no_good_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        assert!(TokenFile::open(path.clone()).is_err());
        fs::write(&path, "one\n").unwrap();
        let token = TokenFile::open(path.clone()).unwrap();
        assert!(token.is("one"));
        for wrong in ["", "on", "one ", "two", "onf"] {
            assert!(!token.is(wrong), "{wrong:?}");
        }
        fs::write(&path, "two").unwrap();
        assert!(token.is("two") && !token.is("one"));
        for bad in ["", " \n", "a b", "a\u{7f}", &"x".repeat(5_000)] {
            fs::write(&path, bad).unwrap();
            assert!(token.is("two"), "{bad:?}");
            let error = read(&path).unwrap_err();
            assert!(matches!(error.problem, TokenProblem::NoToken), "{bad:?}");
            let told = error.to_string();
            assert!(
                told.contains("token") && told.contains("one line"),
                "{told}"
            );
        }
        assert!(!format!("{token:?}").contains("two"));
    }
}
