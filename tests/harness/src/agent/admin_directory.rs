//! The directory of the sockets on which agents are asked.

use std::{
    fs,
    io::{self, ErrorKind},
    path::Path,
};

use anyhow::{Context as _, Result};
use tempfile::NamedTempFile;

/// Keeps the directory: `cleanup` removes it when it is empty, also from under an agent of another
/// test that has just mounted it into its container.
#[derive(Debug)]
pub struct AdminDirectory {
    kept: Option<NamedTempFile>,
}

impl AdminDirectory {
    const PATH: &'static str = "/run/culvert";

    /// Makes the directory unless it is there.
    pub fn keep() -> Result<Self> {
        let kept = make().with_context(|| format!("cannot keep {}", Self::PATH))?;
        Ok(Self { kept: Some(kept) })
    }

    /// Where it is.
    pub fn path(&self) -> &'static Path {
        Path::new(Self::PATH)
    }
}

fn make() -> io::Result<NamedTempFile> {
    loop {
        fs::create_dir_all(AdminDirectory::PATH)?;
        let named = tempfile::Builder::new()
            .prefix("culvert-test-")
            .tempfile_in(AdminDirectory::PATH);
        match named {
            // Removed in between.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            done => return done,
        }
    }
}

impl Drop for AdminDirectory {
    fn drop(&mut self) {
        self.kept = None;
        // Fails while somebody else keeps it.
        fs::remove_dir(AdminDirectory::PATH).ok();
    }
}
