//! What lies in a directory of pins.

use std::{fs, io};

use super::{PinError, PinPath};

/// All that is in `directory`, sorted by name; nothing if it is not there.
pub fn entries_in(directory: &PinPath<'_>) -> Result<Vec<fs::DirEntry>, PinError> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.and_then(Iterator::collect::<io::Result<Vec<_>>>),
    };
    let mut entries = entries.map_err(|error| PinError::Refused {
        what: "reading",
        path: directory.shown().to_owned(),
        error,
    })?;
    entries.sort_by_key(fs::DirEntry::file_name);
    Ok(entries)
}
