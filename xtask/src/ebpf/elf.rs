//! As much of ELF as reading a BPF object takes: sections by name, and functions.
//!
//! 64-bit little-endian files only. Written out here, and not taken from a crate, because every
//! build of `proxy-agent` compiles this library first.

use std::ops::Range;

use anyhow::{Context, Result, bail, ensure};

/// Size of one BPF instruction, in bytes.
pub const INSTRUCTION_SIZE: u64 = 8;

const SHT_NULL: u32 = 0;
const SHT_SYMTAB: u32 = 2;
const SHT_NOBITS: u32 = 8;
const STT_FUNC: u8 = 2;

/// One section of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its name, such as `.BTF` or `cgroup/connect4`.
    pub name: String,
    /// Where its bytes are in the file.
    pub range: Range<usize>,
    kind: u32,
    link: u32,
    header: usize,
}

impl Section {
    /// Makes the section of `file` lie at another offset, with another size.
    pub(super) fn place(&self, file: &mut [u8], offset: usize, size: usize) -> Result<()> {
        for (field, value) in [(0x18, offset), (0x20, size)] {
            let at = self.header + field;
            let bytes = u64::try_from(value).context("an offset is larger than ELF allows")?;
            file[at..at + 8].copy_from_slice(&bytes.to_le_bytes());
        }
        Ok(())
    }

    /// Whether nothing is there: the first of every file, and what was taken out.
    pub(super) fn is_null(&self) -> bool {
        self.kind == SHT_NULL
    }

    /// Its header, with its bytes at another offset.
    pub(super) fn header_at(&self, file: &[u8], offset: usize) -> Result<[u8; 64]> {
        let mut header: [u8; 64] = array_at(file, self.header)?;
        let bytes = u64::try_from(offset).context("an offset is larger than ELF allows")?;
        header[0x18..0x20].copy_from_slice(&bytes.to_le_bytes());
        Ok(header)
    }

    /// What its offset must be a multiple of.
    pub(super) fn alignment(&self, file: &[u8]) -> Result<usize> {
        Ok(offset(read_u64(file, self.header + 0x30)?)?.max(1))
    }
}

/// Says in the header of `file` that its section headers begin at its end.
pub(super) fn set_table(file: &mut [u8]) -> Result<()> {
    let end = u64::try_from(file.len()).context("the file is larger than ELF allows")?;
    file[0x28..0x30].copy_from_slice(&end.to_le_bytes());
    Ok(())
}

/// One function of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its symbol.
    pub name: String,
    /// The section it is in; for a program this says where it attaches.
    pub section: String,
    /// Its length in BPF instructions of 8 bytes.
    pub instructions: u64,
}

/// All sections of an object.
pub fn sections(file: &[u8]) -> Result<Vec<Section>> {
    let header = file
        .get(..64)
        .context("the file is shorter than an ELF header")?;
    ensure!(
        header.starts_with(b"\x7fELF\x02\x01"),
        "not a 64-bit little-endian ELF file"
    );
    let table = offset(read_u64(file, 0x28)?)?;
    let entry_size = usize::from(read_u16(file, 0x3a)?);
    let count = usize::from(read_u16(file, 0x3c)?);
    let names = usize::from(read_u16(file, 0x3e)?);
    let mut found = Vec::with_capacity(count);
    let mut name_offsets = Vec::with_capacity(count);
    for index in 0..count {
        let at = table
            .checked_add(index * entry_size)
            .filter(|at| at.saturating_add(64) <= file.len())
            .with_context(|| format!("the header of section {index} lies outside the file"))?;
        let kind = read_u32(file, at + 4)?;
        let start = offset(read_u64(file, at + 0x18)?)?;
        let size = if kind == SHT_NOBITS {
            0
        } else {
            offset(read_u64(file, at + 0x20)?)?
        };
        let end = start.checked_add(size).filter(|end| *end <= file.len());
        let end =
            end.with_context(|| format!("section {index} reaches past the end of the file"))?;
        name_offsets.push(offset(u64::from(read_u32(file, at)?))?);
        let link = read_u32(file, at + 0x28)?;
        found.push(Section {
            name: String::new(),
            range: start..end,
            kind,
            link,
            header: at,
        });
    }
    let names = found
        .get(names)
        .context("the section of section names does not exist")?;
    let names = file[names.range.clone()].to_vec();
    for (section, at) in found.iter_mut().zip(name_offsets) {
        section.name = string_at(&names, at)?;
    }
    Ok(found)
}

/// All functions of an object, in the order of its symbol table.
pub fn functions(file: &[u8]) -> Result<Vec<Function>> {
    let sections = sections(file)?;
    let mut found = Vec::new();
    for table in sections.iter().filter(|section| section.kind == SHT_SYMTAB) {
        let strings = sections
            .get(table.link as usize)
            .context("a symbol table has no names")?;
        let strings = &file[strings.range.clone()];
        for symbol in file[table.range.clone()].chunks_exact(24) {
            if symbol[4] & 0xf != STT_FUNC {
                continue;
            }
            let section = sections.get(usize::from(read_u16(symbol, 6)?));
            let section = section.context("a function lies in no section")?;
            found.push(Function {
                name: string_at(strings, offset(u64::from(read_u32(symbol, 0)?))?)?,
                section: section.name.clone(),
                instructions: read_u64(symbol, 16)? / INSTRUCTION_SIZE,
            });
        }
    }
    Ok(found)
}

/// The NUL-terminated string that starts `at` this offset of a string table.
pub(super) fn string_at(table: &[u8], at: usize) -> Result<String> {
    let rest = table
        .get(at..)
        .context("a name lies outside its string table")?;
    let Some(end) = rest.iter().position(|byte| *byte == 0) else {
        bail!("a name in a string table has no end");
    };
    Ok(String::from_utf8_lossy(&rest[..end]).into_owned())
}

/// A little-endian number of the file.
pub(super) fn read_u32(file: &[u8], at: usize) -> Result<u32> {
    Ok(u32::from_le_bytes(array_at(file, at)?))
}

fn read_u16(file: &[u8], at: usize) -> Result<u16> {
    Ok(u16::from_le_bytes(array_at(file, at)?))
}

fn read_u64(file: &[u8], at: usize) -> Result<u64> {
    Ok(u64::from_le_bytes(array_at(file, at)?))
}

fn array_at<const N: usize>(file: &[u8], at: usize) -> Result<[u8; N]> {
    let bytes = at.checked_add(N).and_then(|end| file.get(at..end));
    let bytes = bytes.with_context(|| format!("the file ends before offset {at:#x}"))?;
    Ok(bytes
        .try_into()
        .expect("a slice of N bytes makes an array of N"))
}

fn offset(value: u64) -> Result<usize> {
    usize::try_from(value).context("an offset is larger than the address space")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An object with these sections (and the one of their names), without symbols.
    pub(in crate::ebpf) fn object_with(contents: &[(&str, &[u8])]) -> Vec<u8> {
        let mut names = vec![0u8];
        let mut file = vec![0u8; 64];
        let mut headers = vec![0u8; 64];
        let mut header = |name: u32, kind: u32, start: usize, size: usize| {
            let mut bytes = [0u8; 64];
            bytes[..4].copy_from_slice(&name.to_le_bytes());
            bytes[4..8].copy_from_slice(&kind.to_le_bytes());
            bytes[0x18..0x20].copy_from_slice(&(start as u64).to_le_bytes());
            bytes[0x20..0x28].copy_from_slice(&(size as u64).to_le_bytes());
            headers.extend(bytes);
        };
        for (name, content) in contents {
            let at = u32::try_from(names.len()).unwrap();
            names.extend(name.bytes().chain([0]));
            header(at, 1, file.len(), content.len());
            file.extend(*content);
        }
        header(0, 3, file.len(), names.len());
        file.extend(names);
        let table = file.len() as u64;
        file.extend(headers);
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[0x28..0x30].copy_from_slice(&table.to_le_bytes());
        file[0x3a..0x3c].copy_from_slice(&64u16.to_le_bytes());
        let count = u16::try_from(contents.len() + 2).unwrap();
        file[0x3c..0x3e].copy_from_slice(&count.to_le_bytes());
        file[0x3e..0x40].copy_from_slice(&(count - 1).to_le_bytes());
        file
    }

    #[test]
    fn sections_are_found_with_their_bytes() {
        let file = object_with(&[("maps", b"abc"), (".BTF", b"defgh")]);
        let found = sections(&file).unwrap();
        let btf = found.iter().find(|section| section.name == ".BTF").unwrap();
        assert_eq!(&file[btf.range.clone()], b"defgh");
    }

    #[test]
    fn other_files_are_refused() {
        let said = sections(&[0; 100]).unwrap_err().to_string();
        assert!(
            said.contains("not a 64-bit little-endian ELF file"),
            "{said}"
        );
        assert!(sections(b"\x7fELF").is_err());
    }

    #[test]
    fn a_truncated_object_is_an_error_not_a_panic() {
        let file = object_with(&[("maps", b"abc"), (".BTF", b"defgh")]);
        for length in 0..file.len() {
            assert!(
                sections(&file[..length]).is_err(),
                "{length} of {} bytes",
                file.len()
            );
        }
    }

    #[test]
    fn functions_of_this_very_test_program_are_found() {
        // The test binary is an ELF file with a symbol table, made by another linker.
        let file = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let found = functions(&file).unwrap();
        assert!(
            found
                .iter()
                .any(|function| function.name == "main" && function.section == ".text")
        );
    }

    #[test]
    fn a_section_that_reaches_past_the_end_is_an_error() {
        let mut file = object_with(&[("maps", b"abc")]);
        let section = sections(&file).unwrap().remove(1);
        let length = file.len();
        section.place(&mut file, length, 1).unwrap();
        let said = sections(&file).unwrap_err().to_string();
        assert!(said.contains("section 1 reaches past the end"), "{said}");
    }

    #[test]
    fn functions_have_their_section_and_length() {
        // Name at 1, a global function, in section 1, 24 bytes long.
        let mut symbol = [0u8; 24];
        symbol[0] = 1;
        symbol[4] = 1 << 4 | STT_FUNC;
        symbol[6] = 1;
        symbol[16] = 24;
        let contents: &[(&str, &[u8])] = &[
            ("cgroup/connect4", b""),
            ("strings", b"\0lead\0"),
            ("symbols", &symbol),
        ];
        let mut file = object_with(contents);
        let header = sections(&file).unwrap()[3].header;
        file[header + 4] = 2;
        file[header + 0x28] = 2;
        let expected = Function {
            name: "lead".to_owned(),
            section: "cgroup/connect4".to_owned(),
            instructions: 3,
        };
        assert_eq!(functions(&file).unwrap(), [expected]);
    }
}
