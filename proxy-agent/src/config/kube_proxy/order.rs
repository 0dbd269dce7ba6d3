//! Which backends are used, in which order: `culvert.backendOrder`.

use proxy_backend::{BackendKind, Place};

use super::Mode;

/// The backends of `all` that are `named`, or all of them if none is. At least one of `all`. With what
/// is wrong, which completes the sentence "field: …".
pub(super) fn of(
    named: &[String],
    mode: Mode,
    all: &[BackendKind],
) -> (Vec<BackendKind>, Vec<String>) {
    let (mut order, mut wrong) = (Vec::new(), Vec::new());
    for name in named {
        match BackendKind::named(name, all) {
            Some(kind) if order.contains(&kind) => wrong.push(format!("{name} is named twice")),
            Some(kind) => order.push(kind),
            None => {
                let known: Vec<_> = all.iter().map(|kind| kind.name()).collect();
                wrong.push(format!(
                    "there is no backend \"{name}\" in this version; choose from {}",
                    known.join(", ")
                ));
            }
        }
    }
    if let Some(kind) = mode.required()
        && kind.place() == Place::Packets
        && !named.is_empty()
    {
        wrong.push(format!(
            "mode {} uses this backend alone; set mode auto, or no order",
            kind.name()
        ));
    }
    if order.is_empty() {
        order = all.to_vec();
    }
    (order, wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::toy::{BROKEN, KITE, TOY};

    #[test]
    fn an_order_names_each_backend_once_and_is_for_modes_with_a_choice() {
        let all = [KITE, BROKEN, TOY];
        for (named, mode, order, wrong) in [
            (&[][..], Mode::Auto, &all[..], &[][..]),
            (&["toy", "kite"], Mode::Auto, &[TOY, KITE], &[]),
            (&["kite"], Mode::Only(KITE), &[KITE], &[]),
            (&[], Mode::Only(TOY), &all, &[]),
            (
                &["toy", "train", "toy"],
                Mode::Unset,
                &[TOY],
                &[
                    "there is no backend \"train\" in this version; choose from kite, broken, toy",
                    "toy is named twice",
                ],
            ),
            (
                &["kite"],
                Mode::Only(TOY),
                &[KITE],
                &["mode toy uses this backend alone; set mode auto, or no order"],
            ),
        ] {
            let named: Vec<_> = named.iter().map(|name: &&str| (*name).to_owned()).collect();
            let (found, mistakes) = of(&named, mode, &all);
            assert_eq!(found, order, "{named:?}");
            assert_eq!(mistakes, wrong, "{named:?}");
        }
    }
}
