//! Writing the archive format that the kernel unpacks as its first root file system ("newc", as
//! the kernel's `Documentation/driver-api/early-userspace/buffer-format.rst` describes it).

/// An archive under construction.
#[derive(Debug, Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const REGULAR: u32 = 0o100_644;

impl Archive {
    /// Adds a directory. Its parent has to be there already.
    pub(super) fn directory(&mut self, name: &str) {
        self.entry(name, DIRECTORY, &[]);
    }

    /// Adds an executable file.
    pub(super) fn program(&mut self, name: &str, content: &[u8]) {
        self.entry(name, PROGRAM, content);
    }

    /// Adds a file.
    pub(super) fn file(&mut self, name: &str, content: &[u8]) {
        self.entry(name, REGULAR, content);
    }

    /// The finished archive.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let size = u32::try_from(content.len()).expect("no file of a guest has 4 GiB");
        let name_size = u32::try_from(name.len() + 1).expect("a name is short");
        // inode, mode, owner, group, links, time, size, device and special device twice, name's
        // size, checksum
        let fields = [
            self.entries,
            mode,
            0,
            0,
            1,
            0,
            size,
            0,
            0,
            0,
            0,
            name_size,
            0,
        ];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").bytes());
        }
        self.bytes.extend(name.bytes().chain([0]));
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_contents_start_at_multiples_of_four() {
        let mut archive = Archive::default();
        archive.directory("dev");
        archive.file("dev/greeting", b"hello");
        let bytes = archive.finish();
        let at = |text: &[u8]| bytes.windows(text.len()).position(|w| w == text).unwrap();
        assert_eq!(at(b"hello") % 4, 0);
        // The header of the second entry comes right after the padded first one: 110 + "dev\0".
        assert_eq!(&bytes[116..122], b"070701");
        assert_eq!(at(b"TRAILER!!!") % 4, 2);
    }

    #[test]
    fn sizes_are_eight_hexadecimal_digits() {
        let mut archive = Archive::default();
        archive.program("init", &[b'x'; 300]);
        let bytes = archive.finish();
        assert_eq!(&bytes[14..22], b"000081ed");
        assert_eq!(&bytes[54..62], b"0000012c");
    }
}
