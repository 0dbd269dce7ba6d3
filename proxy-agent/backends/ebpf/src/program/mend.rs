//! Puts the maps right where they do not hold what they should, and only there.

use super::{
    super::{
        adopt::{self, Adopted},
        compare::{Expected, Mismatch},
        describe,
        entry::{MapError, ServiceMaps},
        numbers::Numbers,
        programmed::Programmed,
    },
    Programmer,
};
use proxy_model::{Difference, DifferenceKind};

/// What the maps hold that they should not, and the other way round.
#[derive(Debug, Default)]
pub struct Repairs {
    mismatches: Vec<Mismatch>,
    /// First number that was never given out: as it should be, and as it is.
    numbers: Option<(u32, u32)>,
    /// The same in words.
    pub differences: Vec<Difference>,
}

impl Repairs {
    fn new(expected: &Expected<'_>, mismatches: Vec<Mismatch>, reserved: [u32; 2]) -> Self {
        let [wanted, found] = reserved;
        let mut differences: Vec<Difference> = mismatches
            .iter()
            .map(|mismatch| difference(expected, mismatch))
            .collect();
        let numbers = (wanted != found).then_some((wanted, found));
        if numbers.is_some() {
            differences.push(Difference {
                object: "NUMBERS 0".to_owned(),
                kind: DifferenceKind::Changed,
                service: None,
                wanted: Some(wanted.to_string()),
                found: Some(found.to_string()),
            });
        }
        Self {
            mismatches,
            numbers,
            differences,
        }
    }
}

fn difference(expected: &Expected<'_>, mismatch: &Mismatch) -> Difference {
    let kind = match (&mismatch.wanted, &mismatch.found) {
        (Some(_), Some(_)) => DifferenceKind::Changed,
        (None, _) => DifferenceKind::Unexpected,
        (Some(_), None) => DifferenceKind::Missing,
    };
    Difference {
        object: describe::object(&mismatch.key),
        kind,
        service: expected.owner(mismatch),
        wanted: mismatch.wanted.as_ref().map(describe::content),
        found: mismatch.found.as_ref().map(describe::content),
    }
}

impl<M: ServiceMaps> Programmer<M> {
    /// What the maps mean, and what is inconsistent in them. Writes nothing.
    pub fn read(&self) -> Result<(Programmed, Repairs), MapError> {
        let Adopted {
            programmed,
            mismatches,
        } = adopt::adopt(&self.maps.entries()?);
        // Whatever NUMBERS says is taken as it is: there is nothing to compare it with.
        let repairs = Repairs::new(&Expected::new(&programmed), mismatches, [0, 0]);
        Ok((programmed, repairs))
    }

    /// Reads back what the maps hold, makes it consistent, and continues from there. Returns what
    /// was inconsistent.
    pub fn adopt(&mut self) -> Result<Vec<Difference>, MapError> {
        let (programmed, repairs) = self.read()?;
        let reserved = self.maps.reserved_numbers()?;
        let mut in_use = programmed.numbers();
        in_use.extend(self.remembered.all());
        self.numbers = Numbers::resume(reserved, in_use);
        self.programmed = programmed;
        self.given_up.clear();
        self.mend(&repairs)?;
        Ok(repairs.differences)
    }

    /// Compares what the maps hold with what was written to them.
    pub fn compare(&self) -> Result<Repairs, MapError> {
        let expected = Expected::new(&self.programmed);
        let mismatches = expected.mismatches(&self.maps.entries()?);
        let reserved = [self.numbers.written(), self.maps.reserved_numbers()?];
        Ok(Repairs::new(&expected, mismatches, reserved))
    }

    /// Writes what differs: first what is missing or changed, what is pointed to before what
    /// points to it; then removes what should not be there, the other way round.
    pub fn mend(&mut self, repairs: &Repairs) -> Result<(), MapError> {
        if let Some((wanted, _)) = repairs.numbers {
            self.maps.reserve_numbers(wanted)?;
            self.writes += 1;
        }
        let first_removal = repairs
            .mismatches
            .partition_point(|mismatch| mismatch.wanted.is_some());
        let (puts, removals) = repairs.mismatches.split_at(first_removal);
        let mut removals = removals.iter();
        for entry in puts.iter().filter_map(|mismatch| mismatch.wanted.as_ref()) {
            match self.maps.put(entry) {
                // What should not be there may be what fills the map.
                Err(error) if error.no_room => {
                    self.remove_all(&mut removals)?;
                    self.maps.put(entry)?;
                }
                result => result?,
            }
            self.writes += 1;
        }
        self.remove_all(&mut removals)
    }

    fn remove_all<'a>(
        &mut self,
        removals: &mut impl Iterator<Item = &'a Mismatch>,
    ) -> Result<(), MapError> {
        for mismatch in removals {
            self.maps.remove(&mismatch.key)?;
            self.writes += 1;
        }
        Ok(())
    }
}
