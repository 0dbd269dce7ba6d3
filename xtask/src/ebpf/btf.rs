//! Names byte arrays so that bpftool prints them as text.
//!
//! bpftool shows an array as a string only if its element is a BTF integer called `char`, which
//! is what C has. rustc calls the same one-byte signed integer `i8`. Renaming it makes
//! `bpftool map dump` print `"namespace": "shop"` in place of a list of numbers. The only `i8`
//! arrays in our maps are names, so nothing else changes its looks; a number in a map is never
//! an `i8`. The type itself (size, sign, encoding) stays as it was, so the kernel and aya see
//! the same layout.

use anyhow::{Context, Result, bail, ensure};

use super::elf::{self, Section, read_u32, string_at};

/// The section that holds type information.
const SECTION: &str = ".BTF";
const MAGIC: u32 = 0xeb9f;
const KIND_INT: u32 = 1;
const RUST_NAME: &str = "i8";
const C_NAME: &[u8] = b"char\0";

/// Renames the integer type `i8` to `char` in a BPF object. An object without that type stays as
/// it is; one that is malformed, or linked without BTF, is an error.
///
/// BTF names a type by an offset into its string table, which is the last part of the section.
/// The new name is appended to it, and the section, now longer, moves to the end of the file;
/// nothing that refers into the section changes.
pub fn name_byte_arrays(object: &mut Vec<u8>) -> Result<()> {
    let sections = elf::sections(object)?;
    let Some(section) = sections.into_iter().find(|section| section.name == SECTION) else {
        bail!("the object has no {SECTION} section: it was linked without `--btf`");
    };
    let Some(renamed) = rename(&object[section.range.clone()])? else {
        return Ok(());
    };
    move_to_the_end(object, &section, &renamed)
}

fn move_to_the_end(object: &mut Vec<u8>, section: &Section, content: &[u8]) -> Result<()> {
    // The kernel's types are made of four-byte words.
    object.resize(object.len().next_multiple_of(4), 0);
    let end = object.len();
    section.place(object, end, content.len())?;
    object.extend(content);
    Ok(())
}

/// The section with the type renamed; `None` if there is nothing to rename.
fn rename(btf: &[u8]) -> Result<Option<Vec<u8>>> {
    ensure!(
        read_u32(btf, 0)? & 0xffff == MAGIC,
        "the {SECTION} section does not hold BTF"
    );
    let header = read_u32(btf, 4)? as usize;
    let part = |offset: usize, length: usize| -> Result<std::ops::Range<usize>> {
        let start = header + read_u32(btf, offset)? as usize;
        let end = start + read_u32(btf, length)? as usize;
        ensure!(
            end <= btf.len(),
            "the BTF header points outside its section"
        );
        Ok(start..end)
    };
    let (types, strings) = (part(8, 12)?, part(16, 20)?);
    let Some(at) = find_byte_type(&btf[types.clone()], &btf[strings.clone()])? else {
        return Ok(None);
    };
    ensure!(
        strings.end == btf.len(),
        "the string table is not the last part of the BTF"
    );
    let mut renamed = [btf, C_NAME].concat();
    let mut set = |at: usize, value: usize| -> Result<()> {
        let value = u32::try_from(value).context("the BTF is larger than its offsets can say")?;
        renamed[at..at + 4].copy_from_slice(&value.to_le_bytes());
        Ok(())
    };
    set(types.start + at, strings.len())?;
    set(20, strings.len() + C_NAME.len())?;
    Ok(Some(renamed))
}

/// Where, among the types, the integer called `i8` starts.
fn find_byte_type(types: &[u8], strings: &[u8]) -> Result<Option<usize>> {
    let mut at = 0;
    while at < types.len() {
        let name = read_u32(types, at)? as usize;
        let info = read_u32(types, at + 4)?;
        let kind = info >> 24 & 0x1f;
        if kind == KIND_INT && string_at(strings, name)? == RUST_NAME {
            return Ok(Some(at));
        }
        at += 12 + length_after_header(kind, (info & 0xffff) as usize)?;
    }
    Ok(None)
}

/// Bytes that follow the 12 of each type's header, by kind and member count (`linux/btf.h`).
fn length_after_header(kind: u32, members: usize) -> Result<usize> {
    Ok(match kind {
        // Pointer, forward, typedef, volatile, const, restrict, function, float, type tag.
        2 | 7 | 8 | 9 | 10 | 11 | 12 | 16 | 18 => 0,
        // Integer, variable, declaration tag.
        KIND_INT | 14 | 17 => 4,
        // Array.
        3 => 12,
        // Structure, union, data section, 64-bit enumeration.
        4 | 5 | 15 | 19 => members * 12,
        // Enumeration, function prototype.
        6 | 13 => members * 8,
        _ => bail!("the BTF has a type of kind {kind}, which this build does not know"),
    })
}

#[cfg(test)]
mod tests {
    use super::super::elf::tests::object_with;
    use super::*;

    const STRINGS: &[u8] = b"\0u8\0i8\0namespace\0";

    fn int(name: u32, size: u32) -> Vec<u8> {
        words(&[name, KIND_INT << 24, size, size * 8])
    }

    fn words(values: &[u32]) -> Vec<u8> {
        values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect()
    }

    fn btf(types: &[Vec<u8>], strings: &[u8]) -> Vec<u8> {
        let types = types.concat();
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap();
        let mut all = words(&[MAGIC | 1 << 16, 24, 0, length(&types)]);
        all.extend(words(&[length(&types), length(strings)]));
        all.extend(types);
        all.extend(strings);
        all
    }

    /// A structure of one member in front, so that the search has to step over it.
    fn structure() -> Vec<u8> {
        words(&[7, 4 << 24 | 1, 16, 7, 2, 0])
    }

    fn name_of_second_type(object: &[u8]) -> String {
        let section = elf::sections(object)
            .unwrap()
            .into_iter()
            .find(|s| s.name == SECTION);
        let btf = &object[section.unwrap().range];
        let types = 24..24 + read_u32(btf, 12).unwrap() as usize;
        let name = read_u32(btf, types.start + 24).unwrap() as usize;
        string_at(&btf[types.end..], name).unwrap()
    }

    #[test]
    fn the_byte_type_is_renamed_and_nothing_else_is() {
        let sections: &[(&str, &[u8])] = &[
            (SECTION, &btf(&[structure(), int(4, 1)], STRINGS)),
            ("maps", b"content"),
        ];
        let before = object_with(sections);
        let mut after = before.clone();
        name_byte_arrays(&mut after).unwrap();
        assert_eq!(name_of_second_type(&before), "i8");
        assert_eq!(name_of_second_type(&after), "char");
        let content = |object: &[u8], name: &str| {
            let found = elf::sections(object)
                .unwrap()
                .into_iter()
                .find(|s| s.name == name);
            object[found.unwrap().range].to_vec()
        };
        assert_eq!(content(&before, "maps"), content(&after, "maps"));
        // The name's offset and the string table's length, then the new name.
        let (old, new) = (content(&before, SECTION), content(&after, SECTION));
        let changed: Vec<_> = (0..old.len()).filter(|at| old[*at] != new[*at]).collect();
        assert_eq!(changed, [20, 48]);
        assert_eq!(&new[old.len()..], C_NAME);
    }

    #[test]
    fn doing_it_twice_is_doing_it_once() {
        let mut object = object_with(&[(SECTION, &btf(&[structure(), int(4, 1)], STRINGS))]);
        name_byte_arrays(&mut object).unwrap();
        let once = object.clone();
        name_byte_arrays(&mut object).unwrap();
        assert_eq!(once, object);
    }

    #[test]
    fn an_object_without_the_type_stays_as_it_is() {
        let before = object_with(&[(SECTION, &btf(&[structure(), int(1, 1)], STRINGS))]);
        let mut after = before.clone();
        name_byte_arrays(&mut after).unwrap();
        assert_eq!(before, after);
    }

    #[test]
    fn a_string_table_elsewhere_is_an_error() {
        let mut misplaced = btf(&[int(4, 1)], STRINGS);
        misplaced.extend([0; 4]);
        let said = name_byte_arrays(&mut object_with(&[(SECTION, &misplaced)])).unwrap_err();
        assert!(said.to_string().contains("not the last part"), "{said}");
    }

    #[test]
    fn an_object_without_btf_is_refused() {
        let said = name_byte_arrays(&mut object_with(&[("maps", b"")]))
            .unwrap_err()
            .to_string();
        assert!(said.contains("linked without `--btf`"), "{said}");
    }

    #[test]
    fn a_type_of_unknown_kind_is_an_error() {
        let unknown = words(&[0, 31 << 24, 0]);
        let mut object = object_with(&[(SECTION, &btf(&[unknown], STRINGS))]);
        let said = name_byte_arrays(&mut object).unwrap_err().to_string();
        assert!(said.contains("kind 31"), "{said}");
    }
}
