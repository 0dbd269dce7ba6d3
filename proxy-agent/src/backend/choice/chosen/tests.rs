//! Every mode, on every host.

use super::*;
use crate::backend::toy::{BROKEN, KITE, LACKS, TOY};

/// What is chosen where `broken` cannot be used: layers, spares, reason.
fn chosen(mode: Mode, order: &[BackendKind]) -> Chosen {
    let probe = |kind| (kind == BROKEN).then(|| "this host lacks: a floor".to_owned());
    choose(mode, order, probe).unwrap()
}

fn names(kinds: &[BackendKind]) -> Vec<&'static str> {
    kinds.iter().map(|kind| kind.name()).collect()
}

#[test]
fn one_above_and_the_first_packet_backend_that_this_host_supports() {
    for (order, layers, spares) in [
        (&[KITE, TOY][..], &["kite", "toy"][..], &[""; 0][..]),
        (&[TOY, KITE], &["kite", "toy"], &[]),
        (&[KITE, BROKEN, TOY], &["kite", "toy"], &[]),
        (&[KITE, BROKEN], &["kite"], &[]),
        (&[KITE], &["kite"], &[]),
        (&[BROKEN, TOY], &["toy"], &[]),
    ] {
        let chosen = chosen(Mode::Auto, order);
        assert_eq!(names(&chosen.layers), layers, "{order:?}");
        assert_eq!(names(&chosen.spares), spares, "{order:?}");
        assert_eq!(chosen.choice().cause, Cause::First);
    }
    let any = choose(Mode::Auto, &[TOY, KITE, BROKEN], |_| None).unwrap();
    assert_eq!(names(&any.layers), ["kite", "toy"]);
    assert_eq!(names(&any.spares), ["broken"]);
}

#[test]
fn a_mode_that_names_a_packet_backend_looks_at_no_host() {
    let mode = Mode::Only(TOY);
    let chosen = choose(mode, &[KITE, TOY, BROKEN], |kind| panic!("{kind:?}")).unwrap();
    assert_eq!(names(&chosen.layers), ["toy"]);
    let choice = chosen.choice();
    assert_eq!((choice.mode, choice.cause), ("toy", Cause::Named));
    assert_eq!(choice.reason, "mode toy selects it: toy alone");
}

#[test]
fn a_mode_that_names_one_above_takes_a_packet_backend_if_it_can() {
    let all = [KITE, BROKEN, TOY];
    let over = chosen(Mode::Only(KITE), &all);
    assert_eq!(names(&over.layers), ["kite", "toy"]);
    let alone = chosen(Mode::Only(KITE), &[KITE, BROKEN]);
    assert_eq!(names(&alone.layers), ["kite"]);
    assert_eq!(
        alone.choice().reason,
        "mode kite selects it: kite alone, because no packet backend can be used"
    );
    let only = chosen(Mode::Auto, &[KITE]).choice().reason;
    assert_eq!(
        only,
        "kite alone, because there is no packet backend to choose from"
    );
    let without = choose(Mode::Auto, &[KITE, TOY], |kind| {
        (kind == KITE).then(|| "no wind".to_owned())
    });
    assert_eq!(
        without.unwrap().choice().reason,
        "toy alone, because no backend can be used above it"
    );
    // It is not looked at: what stops it is said when it is opened.
    let asked = choose(Mode::Only(KITE), &[KITE, TOY], |kind| {
        assert_eq!(kind, TOY);
        None
    });
    assert_eq!(names(&asked.unwrap().layers), ["kite", "toy"]);
}

#[test]
fn what_this_host_cannot_is_refused_with_its_reason() {
    let choice = chosen(Mode::Unset, &[BROKEN, TOY]).choice();
    let json = serde_json::to_value(&choice).unwrap();
    let lack = |capability: Capability| {
        serde_json::json!({
            "capability": capability.as_str(),
            "without": capability.without(),
        })
    };
    let expected = serde_json::json!({
        "mode": "auto", "backend": "toy",
        "reason": "no mode is set, so mode auto applies: toy alone, because there is none above it \
                   to choose from",
        "lacks": LACKS.iter().map(|one| lack(*one)).collect::<Vec<_>>(),
        // Not what this version has for no host: that is no news at any start.
        "refused": [{"backend": "broken", "reason": "this host lacks: a floor"}],
    });
    assert_eq!(json, expected);
    let error = choose(Mode::Auto, &[TOY, BROKEN], |_| Some("too old".to_owned()));
    let error = error.unwrap_err().to_string();
    for part in ["toy: too old", "broken: too old", "check"] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn what_the_whole_lacks_is_what_all_layers_lack() {
    let choice = chosen(Mode::Auto, &[KITE, TOY]).choice();
    assert_eq!(choice.name(), "kite over toy");
    assert_eq!(choice.lacks, [Capability::Sctp]);
    assert_eq!(
        choice.reason,
        "kite takes what it can, toy every other packet"
    );
}

#[test]
fn a_layer_that_turns_out_to_be_of_no_use_gives_way() {
    let no = || "no".to_owned();
    let mut all = choose(Mode::Auto, &[KITE, TOY, BROKEN], |_| None).unwrap();
    // The next packet backend, then none, then nothing is left.
    assert_eq!(all.instead(TOY, no()).unwrap(), Some(BROKEN));
    assert_eq!(names(&all.layers), ["kite", "broken"]);
    assert_eq!(all.instead(BROKEN, no()).unwrap(), None);
    assert_eq!(names(&all.layers), ["kite"]);
    let choice = all.choice();
    assert_eq!(choice.cause, Cause::Instead);
    let refused: Vec<_> = choice.refused.iter().map(|one| one.backend).collect();
    assert_eq!(refused, ["toy", "broken"]);
    let Err(Missing::All(NoBackend(refused))) = all.instead(KITE, no()) else {
        panic!("it was the last")
    };
    assert_eq!(refused.len(), 3);
    assert_eq!(names(&all.layers), ["kite"], "unchanged");

    let mut without_above = chosen(Mode::Auto, &[KITE, TOY]);
    assert_eq!(without_above.instead(KITE, no()).unwrap(), None);
    assert_eq!(names(&without_above.layers), ["toy"]);

    let mut required = chosen(Mode::Only(KITE), &[KITE, TOY]);
    assert!(matches!(
        required.instead(KITE, no()),
        Err(Missing::Required)
    ));
    assert_eq!(required.instead(TOY, no()).unwrap(), None);
    assert_eq!(names(&required.layers), ["kite"]);
}
