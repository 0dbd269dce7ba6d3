//! Sums of the Internet's kind: how one changes with what it covers (RFC 1071, RFC 1624).

use super::Words;

/// The sum after a half word, in host order as the sum itself, was replaced (RFC 1624, equation 3).
#[inline(always)]
pub const fn of_half(sum: u16, from: u16, to: u16) -> u16 {
    let total = (!sum) as u32 + (!from) as u32 + to as u32;
    let total = (total & 0xffff) + (total >> 16);
    !((total & 0xffff) + (total >> 16)) as u16
}

/// The sum after a word was replaced, of which the memory is in network order.
#[inline(always)]
pub const fn of_word(sum: u16, from: u32, to: u32) -> u16 {
    let (from, to) = (u32::from_be(from), u32::from_be(to));
    let sum = of_half(sum, (from >> 16) as u16, (to >> 16) as u16);
    of_half(sum, from as u16, to as u16)
}

/// By how much what covers an address changes when it is replaced: the sum of the words of `to`
/// without those of `from`, not folded, as the kernel has them (`__wsum`).
#[inline(always)]
pub const fn difference(from: &Words, to: &Words) -> u32 {
    let mut total = 0;
    let mut index = 0;
    while index < 4 {
        total += (!from[index]) as u64 + to[index] as u64;
        index += 1;
    }
    let total = (total & 0xffff_ffff) + (total >> 32);
    (total + (total >> 32)) as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::in_memory::folded;

    /// The sum of `words`, computed anew.
    fn sum(words: &Words) -> u16 {
        !folded(bytemuck::bytes_of(words))
    }

    proptest! {
        #[test]
        fn what_is_replaced_word_by_word_sums_up_to_what_is_there(
            from in any::<Words>(), to in any::<Words>(),
        ) {
            let mut changed = sum(&from);
            for (from, to) in from.into_iter().zip(to) {
                changed = of_word(changed, from, to);
            }
            prop_assert_eq!(changed, sum(&to));
        }

        #[test]
        fn a_difference_takes_one_address_out_and_the_other_in(
            from in any::<Words>(), to in any::<Words>(),
        ) {
            // In host order: the sum of half words is the same in either (RFC 1071, section 2).
            let change = folded(&difference(&from, &to).to_ne_bytes());
            prop_assert_eq!(of_half(sum(&from), 0, change), sum(&to));
        }
    }
}
