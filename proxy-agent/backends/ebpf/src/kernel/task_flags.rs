//! Where the kernel keeps the flags of a task: what the programs must know to tell a thread of the
//! kernel from a process. Read from the kernel's own type information (BTF), of which aya tells no
//! members; the format is `Documentation/bpf/btf.rst` of the kernel.

use std::fs;

const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

const MAGIC: u16 = 0xEB9F;
const STRUCT: u32 = 4;
const UNION: u32 = 5;

/// How deep members are looked for in structs without a name: the kernel can shuffle members, and
/// then wraps them.
const DEEPEST: usize = 4;

/// The offset of `task_struct.flags` in bytes; `None` where the kernel does not tell.
pub fn offset() -> Option<u32> {
    match fs::read(VMLINUX) {
        Ok(bytes) => {
            let found = Types::parse(&bytes).and_then(|types| types.task_flags());
            if found.is_none() {
                tracing::debug!(path = VMLINUX, "no task_struct.flags found");
            }
            found
        }
        Err(error) => {
            tracing::debug!(path = VMLINUX, %error, "no type information of the kernel");
            None
        }
    }
}

/// All types, by id.
struct Types<'a> {
    bytes: &'a [u8],
    strings: &'a [u8],
    /// Where each begins in `bytes`; id 0 stands for void and is not there.
    begins: Vec<usize>,
}

/// What every type begins with.
struct Head {
    name: u32,
    kind: u32,
    count: usize,
    /// Offsets of members share their word with the width of a bit field.
    wide: bool,
}

impl<'a> Types<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let magic = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
        if magic != MAGIC {
            return None;
        }
        let field = |at| word(bytes, at).map(|value| value as usize);
        let body = bytes.get(field(4)?..)?;
        let part = |offset: usize, length: usize| body.get(offset..offset.checked_add(length)?);
        let mut types = Self {
            bytes: part(field(8)?, field(12)?)?,
            strings: part(field(16)?, field(20)?)?,
            begins: Vec::new(),
        };
        let mut at = 0;
        while at < types.bytes.len() {
            types.begins.push(at);
            at += HEAD + types.head(at)?.body()?;
        }
        Some(types)
    }

    fn head(&self, at: usize) -> Option<Head> {
        let info = word(self.bytes, at + 4)?;
        Some(Head {
            name: word(self.bytes, at)?,
            kind: info >> 24 & 0x1f,
            count: (info & 0xffff) as usize,
            wide: info >> 31 != 0,
        })
    }

    fn is_called(&self, name: u32, wanted: &str) -> bool {
        let rest = self.strings.get(name as usize..);
        rest.and_then(|rest| rest.strip_prefix(wanted.as_bytes()))
            .is_some_and(|rest| rest.first() == Some(&0))
    }

    fn task_flags(&self) -> Option<u32> {
        let task = self.begins.iter().find(|begin| {
            self.head(**begin).is_some_and(|head| {
                head.kind == STRUCT && head.count > 0 && self.is_called(head.name, "task_struct")
            })
        });
        let bits = self.member(*task?, "flags", DEEPEST)?;
        (bits % 8 == 0).then_some(bits / 8)
    }

    /// The offset of a member in bits, also of one in a struct or union without a name.
    fn member(&self, begin: usize, wanted: &str, deepest: usize) -> Option<u32> {
        let head = self.head(begin)?;
        if !matches!(head.kind, STRUCT | UNION) {
            return None;
        }
        (0..head.count).find_map(|index| {
            let at = begin + HEAD + index * MEMBER;
            let (name, of) = (word(self.bytes, at)?, word(self.bytes, at + 4)?);
            let offset = word(self.bytes, at + 8)?;
            let offset = if head.wide {
                offset & 0xff_ffff
            } else {
                offset
            };
            if self.is_called(name, wanted) {
                return Some(offset);
            }
            if !self.is_called(name, "") || deepest == 0 {
                return None;
            }
            let inner = self.begins.get((of as usize).checked_sub(1)?)?;
            offset.checked_add(self.member(*inner, wanted, deepest - 1)?)
        })
    }
}

/// Bytes of name, info and size.
const HEAD: usize = 12;
/// Bytes of a member.
const MEMBER: usize = 12;

impl Head {
    /// The bytes behind it; `None` for a kind that is newer than this.
    fn body(&self) -> Option<usize> {
        Some(match self.kind {
            // Pointers, forward declarations, typedefs, qualifiers, functions, floats, type tags.
            2 | 7..=12 | 16 | 18 => 0,
            // Integers, variables, declaration tags.
            1 | 14 | 17 => 4,
            // Arrays.
            3 => 12,
            // Structs, unions, sections, enums of 64 bits.
            STRUCT | UNION | 15 | 19 => self.count * MEMBER,
            // Enums, prototypes of functions.
            6 | 13 => self.count * 8,
            _ => return None,
        })
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(word.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A string table, by whose offsets types are named.
    const STRINGS: &[u8] = b"\0task_struct\0flags\0state\0flags_of_other\0";
    const TASK: u32 = 1;
    const FLAGS: u32 = 13;
    const STATE: u32 = 19;
    const OTHER: u32 = 25;

    fn btf(types: &[u32]) -> Vec<u8> {
        let length = |bytes: usize| u32::try_from(bytes).unwrap();
        let types: Vec<u8> = types.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let mut bytes = MAGIC.to_ne_bytes().to_vec();
        bytes.extend([1, 0]);
        let header = [
            24,
            0,
            length(types.len()),
            length(types.len()),
            length(STRINGS.len()),
        ];
        bytes.extend(header.iter().flat_map(|word| word.to_ne_bytes()));
        bytes.extend(types);
        bytes.extend(STRINGS);
        bytes
    }

    fn found(types: &[u32]) -> Option<u32> {
        let bytes = btf(types);
        Types::parse(&bytes)?.task_flags()
    }

    const fn info(kind: u32, count: u32) -> u32 {
        kind << 24 | count
    }

    #[test]
    fn the_flags_are_found_among_other_members() {
        let int = [STATE, info(1, 0), 4, 32];
        let other = [OTHER, info(STRUCT, 1), 4, FLAGS, 1, 8];
        let members = [STATE, 1, 0, OTHER, 1, 64, FLAGS, 1, 352];
        let task = [&[TASK, info(STRUCT, 3), 48][..], &members].concat();
        assert_eq!(found(&[&int[..], &other, &task].concat()), Some(44));
        // A forward declaration is none.
        let declared = [TASK, info(7, 0), 0];
        assert_eq!(found(&[&int[..], &declared, &task].concat()), Some(44));
        assert_eq!(found(&[&int[..], &declared].concat()), None);
        // The width of a bit field is no part of the offset.
        let bits = 8 << 24 | 0x160;
        let wide = [TASK, 1 << 31 | info(STRUCT, 1), 48, FLAGS, 1, bits];
        assert_eq!(found(&[&int[..], &wide].concat()), Some(44));
    }

    #[test]
    fn shuffled_members_are_found_where_they_are_wrapped() {
        let int = [STATE, info(1, 0), 4, 32];
        let inner = [0, info(STRUCT, 2), 16, STATE, 1, 0, FLAGS, 1, 64];
        let task = [TASK, info(STRUCT, 2), 32, STATE, 1, 0, 0, 2, 128];
        assert_eq!(found(&[&int[..], &inner, &task].concat()), Some(24));
        // One without end is no reason to have none.
        let endless = [TASK, info(STRUCT, 1), 32, 0, 2, 0];
        assert_eq!(found(&[&int[..], &endless].concat()), None);
    }

    #[test]
    fn what_is_cut_or_unknown_is_none() {
        let whole = btf(&[
            STATE,
            info(1, 0),
            4,
            32,
            TASK,
            info(STRUCT, 1),
            4,
            FLAGS,
            1,
            32,
        ]);
        assert_eq!(Types::parse(&whole).unwrap().task_flags(), Some(4));
        for length in 0..whole.len() {
            let cut = Types::parse(&whole[..length]);
            assert_eq!(cut.and_then(|types| types.task_flags()), None, "{length}");
        }
        assert_eq!(found(&[STATE, info(31, 0), 0]), None);
    }
}
