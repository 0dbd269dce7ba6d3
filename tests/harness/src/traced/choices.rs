//! Random choices, made in every way one after the other.

/// What was chosen on the way that is gone.
#[derive(Debug, Default)]
pub struct Choices {
    made: Vec<Choice>,
    next: usize,
}

#[derive(Debug)]
struct Choice {
    chosen: u64,
    of: u64,
    /// The chance of the number 0; the others share the rest.
    first: f64,
}

impl Choices {
    /// One of so many numbers, from 0, each as likely as the others.
    pub fn one_of(&mut self, count: u64) -> u64 {
        self.choose(count, 1.0 / float(count))
    }

    /// Whether it happens, of which this is the chance.
    pub fn happens(&mut self, chance: f64) -> bool {
        self.choose(2, chance) == 0
    }

    fn choose(&mut self, of: u64, first: f64) -> u64 {
        if self.next == self.made.len() {
            let chosen = 0;
            self.made.push(Choice { chosen, of, first });
        }
        self.next += 1;
        self.made[self.next - 1].chosen
    }

    /// How likely all that was chosen is.
    pub fn chance(&self) -> f64 {
        self.made.iter().map(Choice::chance).product()
    }

    /// Begins again, with another choice; false if all were made.
    pub fn go_on(&mut self) -> bool {
        self.next = 0;
        while let Some(mut last) = self.made.pop() {
            last.chosen += 1;
            if last.chosen < last.of {
                self.made.push(last);
                return true;
            }
        }
        false
    }
}

impl Choice {
    fn chance(&self) -> f64 {
        match self.chosen {
            0 => self.first,
            _ => (1.0 - self.first) / float(self.of - 1),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "nobody chooses among that many")]
const fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_is_gone_once_and_all_chances_are_one() {
        let mut choices = Choices::default();
        let mut ways = Vec::new();
        let mut chances = 0.0;
        loop {
            let way = if choices.happens(0.25) {
                3
            } else {
                choices.one_of(3)
            };
            ways.push((way, choices.chance()));
            chances += choices.chance();
            if !choices.go_on() {
                break;
            }
        }
        assert_eq!(ways, [(3, 0.25), (0, 0.25), (1, 0.25), (2, 0.25)]);
        assert!((chances - 1.0_f64).abs() < 1e-9);
    }
}
