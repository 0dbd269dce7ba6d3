//! A short check over a few words, by which a value proves that it is whole and whose it is.

/// Odd constants without structure (the digits of pi, as Blowfish takes them): one for each word.
const FACTORS: [u64; 12] = [
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
];

/// The check of at most twelve words: the upper half of a sum of products, each of which can be
/// computed without waiting for another. Not cryptographic: it tells apart what an accident mixes.
#[inline(always)]
pub const fn check<const N: usize>(words: [u32; N]) -> u32 {
    let mut sum: u64 = 0;
    let mut index = 0;
    while index < N {
        sum = sum.wrapping_add(FACTORS[index].wrapping_mul(words[index] as u64));
        index += 1;
    }
    (sum >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_of_every_word_counts() {
        let words = [0xdead_beef_u32; 12];
        for index in 0..12 {
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
