//! A short check over a few words, by which a value proves that it is whole and whose it is.

/// Odd constants without structure (the digits of pi, as Blowfish takes them): one for each word.
const FACTORS: [u64; 20] = [
    0x243f_6a88_85a3_08d3,
    0x1319_8a2e_0370_7345,
    0xa409_3822_299f_31d1,
    0x082e_fa98_ec4e_6c89,
    0x4528_21e6_38d0_1377,
    0xbe54_66cf_34e9_0c6d,
    0xc0ac_29b7_c97c_50dd,
    0x3f84_d5b5_b547_0917,
    0x9216_d5d9_8979_fb1b,
    0xd131_0ba6_98df_b5ad,
    0x2ffd_72db_d01a_dfb7,
    0xb8e1_afed_6a26_7e97,
    0xba7c_9045_f12c_7f99,
    0x24a1_9947_b391_6cf7,
    0x0801_f2e2_858e_fc17,
    0x6369_20d8_7157_4e69,
    0xa458_fea3_f493_3d7f,
    0x0d95_748f_728e_b659,
    0x718b_cd58_8215_4aef,
    0x7b54_a41d_c25a_59b5,
];

/// The check of at most twenty words: the upper half of a sum of products, each of which can be
/// computed without waiting for another. Not cryptographic: it tells apart what an accident mixes.
#[inline(always)]
pub const fn check<const N: usize>(words: [u32; N]) -> u32 {
    finish(add::<N, N>(0, 0, &words))
}

/// The sum that a check is made of, with the first `M` of `words` added to it; `before` words were
/// added already.
#[inline(always)]
pub const fn add<const N: usize, const M: usize>(
    mut sum: u64,
    before: usize,
    words: &[u32; N],
) -> u64 {
    let mut index = 0;
    while index < M {
        let product = FACTORS[before + index].wrapping_mul(words[index] as u64);
        sum = sum.wrapping_add(product);
        index += 1;
    }
    sum
}

/// The check that a sum makes.
#[inline(always)]
pub const fn finish(sum: u64) -> u32 {
    (sum >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_of_every_word_counts() {
        let words = [0xdead_beef_u32; 20];
        for index in 0..20 {
            for bit in 0..32 {
                let mut other = words;
                other[index] ^= 1 << bit;
                assert_ne!(check(words), check(other), "word {index} bit {bit}");
            }
        }
    }

    #[test]
    fn swapped_words_differ() {
        assert_ne!(check([1, 2, 3]), check([2, 1, 3]));
    }
}
