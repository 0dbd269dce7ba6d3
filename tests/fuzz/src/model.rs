//! Events as a fuzzer invents them: those that no API server would let through as well.

use arbitrary::{Result, Unstructured};
use proxy_model::{Model, compute};

use crate::{changes::Told, events, questions};

/// More events than this teach a fuzzer nothing new.
const EVENTS: usize = 64;

/// Reads `data` as settings, events and packets.
///
/// # Panics
///
/// If the model after the events one by one is not the model after all of them at once, or
/// anything else is broken.
pub fn run(data: &[u8]) {
    // An input that ends early is one that says no more.
    read(&mut Unstructured::new(data)).unwrap_or_default();
}

fn read(input: &mut Unstructured<'_>) -> Result<()> {
    let settings = events::settings(input)?;
    let mut model = Model::new(settings.clone());
    let mut told = Told::default();
    let mut taken = Vec::new();
    let mut changed = false;
    while !input.is_empty() && taken.len() < EVENTS {
        let event = events::event(input)?;
        changed |= model.apply(event.clone());
        taken.push(event);
        if input.ratio(2, 3)? {
            let before = model.state().clone();
            told.update(&mut model);
            assert!(
                changed || *model.state() == before,
                "events without effect changed the state"
            );
            changed = false;
        }
    }
    told.update(&mut model);
    assert_eq!(*model.state(), compute(settings, taken));
    let mut packets = questions::to_frontends(model.state());
    packets.push(events::packet(input)?);
    questions::ask((&model).into(), packets);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::run;

    #[test]
    fn any_bytes_pass() {
        crate::noise().for_each(|bytes| run(&bytes));
    }
}
