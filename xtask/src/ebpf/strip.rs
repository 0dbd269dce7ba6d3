//! Takes DWARF out of a BPF object.
//!
//! rustc writes debug information because the linker makes BTF of it. Nobody reads it afterwards:
//! the kernel, aya and bpftool read BTF. It is more than half of the object, and the object lies
//! inside every `proxy-agent`.

use anyhow::Result;

use super::elf;

/// Size of an ELF header and of a section header, in bytes.
const HEADER_SIZE: usize = 64;

/// The object without its debug sections, and without bytes that no section owns.
///
/// Section numbers stay as they are, since symbols and relocations name sections by number: the
/// header of a section that was taken out becomes an empty one.
pub fn strip(object: &[u8]) -> Result<Vec<u8>> {
    let sections = elf::sections(object)?;
    let mut stripped = object[..HEADER_SIZE].to_vec();
    let mut headers = Vec::with_capacity(sections.len() * HEADER_SIZE);
    for section in &sections {
        if section.is_null() || is_debug(&section.name) {
            headers.extend([0; HEADER_SIZE]);
            continue;
        }
        let alignment = section.alignment(object)?;
        stripped.resize(stripped.len().next_multiple_of(alignment), 0);
        headers.extend(section.header_at(object, stripped.len())?);
        stripped.extend(&object[section.range.clone()]);
    }
    stripped.resize(stripped.len().next_multiple_of(8), 0);
    elf::set_table(&mut stripped)?;
    stripped.extend(headers);
    Ok(stripped)
}

fn is_debug(name: &str) -> bool {
    let target = name.strip_prefix(".rel").unwrap_or(name);
    target.starts_with(".debug_")
}

#[cfg(test)]
mod tests {
    use super::super::elf::tests::object_with;
    use super::*;

    #[test]
    fn debug_sections_go_and_the_others_keep_their_numbers() {
        let contents: &[(&str, &[u8])] = &[
            (".text", b"code"),
            (".debug_info", b"what a debugger reads"),
            (".rel.debug_info", b"and where"),
            (".BTF", b"types"),
        ];
        let stripped = strip(&object_with(contents)).unwrap();
        let left = elf::sections(&stripped).unwrap();
        let left: Vec<_> = left
            .iter()
            .map(|section| (section.name.as_str(), &stripped[section.range.clone()]))
            .collect();
        assert_eq!(left[1], (".text", &b"code"[..]));
        assert_eq!(left[2..4], [("", &b""[..]); 2]);
        assert_eq!(left[4], (".BTF", &b"types"[..]));
        assert_eq!(left.len(), 6);
    }

    #[test]
    fn what_they_held_is_gone() {
        let object = object_with(&[("maps", b"abc"), (".debug_str", b"a name")]);
        let stripped = strip(&object).unwrap();
        assert!(!stripped.windows(6).any(|bytes| bytes == b"a name"));
        assert_eq!(strip(&stripped).unwrap(), stripped);
    }

    #[test]
    fn what_is_aligned_stays_aligned() {
        let mut object = object_with(&[("one", b"1"), (".debug_str", b"23"), ("words", b"4567")]);
        let table = usize::try_from(u64::from_le_bytes(object[0x28..0x30].try_into().unwrap()));
        object[table.unwrap() + 3 * HEADER_SIZE + 0x30] = 8;
        let stripped = strip(&object).unwrap();
        let words = elf::sections(&stripped).unwrap().remove(3);
        assert_eq!(words.range.start % 8, 0);
        assert_eq!(&stripped[words.range], b"4567");
    }
}
