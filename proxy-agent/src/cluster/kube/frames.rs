//! Answers as they arrive, in pieces of any size, to whole objects: the lines of a watch, and the
//! items of a list. Pure. What is whole within a piece is not copied, and no answer is ever held
//! as a whole, so that memory does not follow the size of a list.

use super::failure::Failure;

/// No object is larger: etcd takes 1.5 MiB by default.
const LARGEST: usize = 16 << 20;
/// Buffers that grew for a large object do not stay large.
const KEEP: usize = 64 << 10;

/// The unfinished end of what came so far.
#[derive(Debug, Default)]
struct Partial(Vec<u8>);

impl Partial {
    fn extend(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if self.0.len() + bytes.len() > LARGEST {
            let message = format!("an object is larger than {} MiB", LARGEST >> 20);
            return Err(Failure::Garbled(message));
        }
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    /// Passes on what came before and `rest` as one.
    fn complete(
        &mut self,
        rest: &[u8],
        each: &mut impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if self.0.is_empty() {
            return each(rest);
        }
        self.extend(rest)?;
        let result = each(&self.0);
        self.0.clear();
        self.0.shrink_to(KEEP);
        result
    }
}

/// Splits a stream of lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    partial: Partial,
}

impl Lines {
    /// Takes the next piece, and calls `each` with every line that is complete now and not empty.
    pub(super) fn push(
        &mut self,
        mut piece: &[u8],
        each: &mut impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        while let Some(end) = piece.iter().position(|&byte| byte == b'\n') {
            self.partial.complete(&piece[..end], &mut |line| {
                if line.trim_ascii().is_empty() {
                    Ok(())
                } else {
                    each(line)
                }
            })?;
            piece = &piece[end + 1..];
        }
        self.partial.extend(piece)
    }

    /// Whether the stream may end here.
    pub(super) fn is_between_lines(&self) -> bool {
        self.partial.0.trim_ascii().is_empty()
    }
}

/// Takes the items out of a list.
#[derive(Debug, Default)]
pub(super) struct Items {
    /// The list without its items.
    head: Partial,
    item: Partial,
    /// How many maps and lists are open.
    depth: usize,
    /// Within `items`.
    listing: bool,
    quoted: bool,
    escaped: bool,
}

/// Within `items`: the list itself is one map, `items` is a list in it.
const DEPTH_OF_ITEMS: usize = 2;

impl Items {
    /// Takes the next piece, and calls `each` with every item that is complete now.
    pub(super) fn push(
        &mut self,
        piece: &[u8],
        each: &mut impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        // Where what is neither in `head` nor in `item` yet begins.
        let mut start = 0;
        for (index, &byte) in piece.iter().enumerate() {
            if self.quoted {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.quoted = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' => self.quoted = true,
                b'{' => self.depth += 1,
                b'[' => {
                    self.depth += 1;
                    if self.depth == DEPTH_OF_ITEMS && !self.listing {
                        self.head.extend(&piece[start..=index])?;
                        start = index + 1;
                        self.listing = is_start_of_items(&self.head.0);
                    }
                }
                b',' if self.listing && self.depth == DEPTH_OF_ITEMS => {
                    self.complete(&piece[start..index], each)?;
                    start = index + 1;
                }
                b'}' | b']' => {
                    if self.listing && self.depth == DEPTH_OF_ITEMS {
                        self.complete(&piece[start..index], each)?;
                        start = index;
                        self.listing = false;
                    }
                    self.depth = self.depth.checked_sub(1).ok_or_else(|| {
                        Failure::Garbled("a list closes more than it opened".to_owned())
                    })?;
                }
                _ => {}
            }
        }
        let rest = &piece[start..];
        if self.listing {
            self.item.extend(rest)
        } else {
            self.head.extend(rest)
        }
    }

    fn complete(
        &mut self,
        rest: &[u8],
        each: &mut impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.item
            .complete(rest, &mut |item| match item.trim_ascii() {
                [] => Ok(()),
                item => each(item),
            })
    }

    /// The list without its items, once it is complete.
    pub(super) fn finish(self) -> Result<Vec<u8>, Failure> {
        if self.depth > 0 || self.quoted || self.head.0.trim_ascii().is_empty() {
            let message = "it ended in the middle of a list";
            return Err(Failure::BrokeOff(message.to_owned()));
        }
        Ok(self.head.0)
    }
}

/// Whether the list that has just been opened at the end of `head` is the value of `items`.
fn is_start_of_items(head: &[u8]) -> bool {
    let key = head
        .strip_suffix(b"[")
        .and_then(|head| head.trim_ascii_end().strip_suffix(b":"))
        .and_then(|head| head.trim_ascii_end().strip_suffix(b"\"items\""));
    key.is_some_and(|before| !before.ends_with(b"\\"))
}

#[cfg(test)]
mod tests;
