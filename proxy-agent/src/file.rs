//! Files that people name, read whole: never without a bound.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
};

/// Reads a text of at most `most` bytes. With more it is an error: `/dev/zero` has no end.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(most + 1).read_to_string(&mut text)?;
    if text.len() as u64 > most {
        let text = format!("it has more than {most} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn no_more_is_read_than_may_be() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "1234").unwrap();
        assert_eq!(read_text(&path, 4).unwrap(), "1234");
        let error = read_text(&path, 3).unwrap_err().to_string();
        assert_eq!(error, "it has more than 3 bytes");
    }
}
