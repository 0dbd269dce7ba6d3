//! Numbers for Service ports, sets and endpoints: one sequence, so that a number names one thing.

use std::collections::HashSet;

/// How many numbers are reserved at once. A restart skips what is left of a block; sockets of
/// before the restart may still hold those numbers.
const BLOCK: u32 = 1 << 16;

/// Gives out numbers. A number is not reused before all others were: a UDP socket may remember an
/// endpoint by its number long after the endpoint is gone.
#[derive(Debug, Default)]
pub struct Numbers {
    next: u32,
    reserved: u32,
    /// What the map says is reserved.
    written: u32,
    in_use: HashSet<u32>,
}

impl Numbers {
    /// Continues after all numbers below `reserved`, with `in_use` taken.
    pub fn resume(reserved: u32, in_use: HashSet<u32>) -> Self {
        let highest = in_use.iter().copied().max().unwrap_or(0);
        // A map that was lost or tampered with must not make numbers repeat.
        let next = reserved.max(highest.saturating_add(1)).max(1);
        Self {
            next,
            reserved: next,
            written: reserved,
            in_use,
        }
    }

    /// The end of a block that must be reserved before the next number is taken, if any.
    pub fn block_to_reserve(&self) -> Option<u32> {
        (self.next >= self.reserved).then(|| self.next.saturating_add(BLOCK))
    }

    /// The end of the last block that was reserved, as the map should have it.
    pub fn written(&self) -> u32 {
        self.written
    }

    /// Notes that all numbers below `end` are reserved.
    pub fn reserved(&mut self, end: u32) {
        (self.reserved, self.written) = (end, end);
    }

    /// A number that is not in use, never 0.
    pub fn take(&mut self) -> u32 {
        loop {
            let number = self.next;
            self.next = number.wrapping_add(1);
            if self.next == 0 {
                // All have been given out once: begin again with those that are free.
                (self.next, self.reserved) = (1, 1);
            }
            if number != 0 && self.in_use.insert(number) {
                return number;
            }
        }
    }

    /// Gives a number back.
    pub fn release(&mut self, number: u32) {
        self.in_use.remove(&number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_start_at_one_and_do_not_repeat() {
        let mut numbers = Numbers::resume(0, HashSet::new());
        assert_eq!((numbers.take(), numbers.take()), (1, 2));
        numbers.release(1);
        assert_eq!(numbers.take(), 3);
    }

    #[test]
    fn a_restart_continues_after_the_reserved_block() {
        let mut numbers = Numbers::resume(0, HashSet::new());
        let end = numbers.block_to_reserve().unwrap();
        numbers.reserved(end);
        assert_eq!(numbers.block_to_reserve(), None);
        assert_eq!(Numbers::resume(end, HashSet::from([7])).take(), end);
        assert_eq!(
            Numbers::resume(0, HashSet::from([7])).take(),
            8,
            "a lost reservation"
        );
    }

    #[test]
    fn numbers_in_use_are_skipped_after_all_were_given_out() {
        let mut numbers = Numbers::resume(u32::MAX, HashSet::from([1, 2]));
        assert_eq!(numbers.take(), u32::MAX);
        assert_eq!(numbers.take(), 3);
        assert!(numbers.block_to_reserve().is_some());
    }
}
