//! Chance that can be repeated: `SplitMix64` (Steele, Lea and Flood, 2014), which is short and good
//! enough for tests.

/// A sequence of choices that its number decides.
#[derive(Debug, Clone)]
pub struct Chance(u64);

impl Chance {
    /// The one with this number.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to `bound` - 1, each as likely as the others.
    ///
    /// # Panics
    ///
    /// If `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).expect("a bound has 64 bits");
        usize::try_from(self.next() % bound).expect("it is below one that fits")
    }

    /// One of `choices`.
    pub fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())].clone()
    }

    /// Up to `most` of `choices`, perhaps one of them twice.
    pub fn some<T: Clone>(&mut self, choices: &[T], most: usize) -> Vec<T> {
        let count = self.below(most + 1);
        (0..count).map(|_| self.pick(choices)).collect()
    }

    /// `most` of `all`, or all of them, in their order.
    pub fn sample<T>(&mut self, all: Vec<T>, most: usize) -> Vec<T> {
        let mut wanted = most.min(all.len());
        let mut left = all.len();
        let keep = |_: &T| {
            let kept = self.below(left) < wanted;
            left -= 1;
            wanted -= usize::from(kept);
            kept
        };
        all.into_iter().filter(keep).collect()
    }

    /// Three times of four.
    pub fn often(&mut self) -> bool {
        self.below(4) > 0
    }

    /// One time of four.
    pub fn seldom(&mut self) -> bool {
        self.below(4) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_known_sequence() {
        // The first numbers of seed 1234567, as in the reference implementations.
        let mut chance = Chance::new(1_234_567);
        assert_eq!(chance.next(), 6_457_827_717_110_365_317);
        assert_eq!(chance.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn samples_have_the_wanted_size_and_their_order() {
        let mut chance = Chance::new(1);
        let sample = chance.sample((0..100).collect(), 10);
        assert_eq!(sample.len(), 10);
        assert!(sample.is_sorted());
        assert_eq!(chance.sample(vec![1, 2], 10), [1, 2]);
    }
}
