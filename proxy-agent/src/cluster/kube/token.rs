//! A file with a bearer token, which whoever wrote it replaces before it expires.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Mutex,
    time::{Duration, Instant},
};

use http::HeaderValue;

use crate::file::read_text;

/// Bytes of a token: servers take no longer headers.
const LARGEST: u64 = 16 << 10;

/// The token of a file, read again now and then.
#[derive(Debug)]
pub(super) struct TokenFile {
    path: PathBuf,
    /// How long a token is used before the file is read again.
    age: Duration,
    token: Mutex<Token>,
}

#[derive(Debug)]
struct Token {
    /// `Bearer …`, not shown by `Debug`.
    header: HeaderValue,
    read: Instant,
}

impl TokenFile {
    /// Reads the file for the first time. The error completes the sentence "path: …".
    pub(super) fn open(path: PathBuf, age: Duration) -> Result<Self, String> {
        let header = read(&path)?;
        let read = Instant::now();
        Ok(Self {
            path,
            age,
            token: Mutex::new(Token { header, read }),
        })
    }

    /// The value of the `Authorization` header.
    pub(super) fn header(&self) -> HeaderValue {
        let mut token = self
            .token
            .lock()
            .expect("nothing panics with this lock held");
        if token.read.elapsed() >= self.age {
            self.refresh(&mut token);
        }
        token.header.clone()
    }

    /// Reads the file again, because the server does not accept `refused`. Returns the header to
    /// try instead, if there is one.
    pub(super) fn instead_of(&self, refused: &HeaderValue) -> Option<HeaderValue> {
        let mut token = self
            .token
            .lock()
            .expect("nothing panics with this lock held");
        self.refresh(&mut token);
        (token.header != *refused).then(|| token.header.clone())
    }

    /// Keeps the old token while the file cannot be read: it may just be being replaced.
    fn refresh(&self, token: &mut Token) {
        token.read = Instant::now();
        match read(&self.path) {
            Ok(header) => token.header = header,
            Err(reason) => {
                let file = self.path.display();
                tracing::warn!(%file, reason, "token file not read");
            }
        }
    }
}

/// The error completes the sentence "path: …".
fn read(path: &Path) -> Result<HeaderValue, String> {
    // Whoever reads it has requests to send: a pipe could keep it waiting for ever.
    let is_file = fs::metadata(path).map(|found| found.is_file());
    let text = match is_file {
        Ok(false) => return Err("is not a regular file".to_owned()),
        Ok(true) => read_text(path, LARGEST),
        Err(error) => Err(error),
    };
    let text = text.map_err(|error| format!("cannot be read: {error}"))?;
    let token = text.trim();
    if token.is_empty() {
        return Err("holds no token".to_owned());
    }
    let mut header = HeaderValue::try_from(format!("Bearer {token}"))
        .map_err(|_| "holds something other than a token".to_owned())?;
    header.set_sensitive(true);
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_again_when_it_is_old_or_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        fs::write(&path, "one\n").unwrap();
        let lasting = TokenFile::open(path.clone(), Duration::MAX).unwrap();
        let brief = TokenFile::open(path.clone(), Duration::ZERO).unwrap();
        assert_eq!(lasting.header(), "Bearer one");
        assert_eq!(lasting.instead_of(&lasting.header()), None);
        fs::write(&path, "two").unwrap();
        assert_eq!(brief.header(), "Bearer two");
        let old = lasting.header();
        assert_eq!(old, "Bearer one");
        assert_eq!(lasting.instead_of(&old).unwrap(), "Bearer two");
        // Somebody else has it read already.
        assert_eq!(lasting.instead_of(&old).unwrap(), "Bearer two");
        assert_eq!(lasting.header(), "Bearer two");
    }

    #[test]
    fn only_a_file_that_can_be_a_token_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        fs::write(&path, "x".repeat(20_000)).unwrap();
        let long = TokenFile::open(path.clone(), Duration::MAX).unwrap_err();
        assert_eq!(long, "cannot be read: it has more than 16384 bytes");
        // Nobody ever writes into it.
        fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRUSR).unwrap();
        let pipe = TokenFile::open(path, Duration::MAX).unwrap_err();
        assert_eq!(pipe, "is not a regular file");
    }

    #[test]
    fn the_last_token_is_kept_while_there_is_no_good_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        fs::write(&path, "one").unwrap();
        let token = TokenFile::open(path.clone(), Duration::ZERO).unwrap();
        for bad in ["", " \n", "a\u{7f}"] {
            fs::write(&path, bad).unwrap();
            assert_eq!(token.header(), "Bearer one", "{bad:?}");
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(token.header(), "Bearer one");
        assert!(TokenFile::open(path, Duration::ZERO).is_err());
    }

    #[test]
    fn a_token_is_not_shown() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        fs::write(&path, "secret").unwrap();
        let token = TokenFile::open(path, Duration::ZERO).unwrap();
        assert!(!format!("{token:?}").contains("secret"));
    }
}
