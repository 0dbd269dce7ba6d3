//! As filters, as before Linux 6.6.

use super::{Bench, Direction, State, ours, program, run, swaps_without_a_gap, with_devices};
use crate::kernel::{
    syscalls::load_classifier,
    tc::{self, Attached, Hook, TcError, Way, clsact, sweep::sweep, tcx},
};

/// As [`tc::attach`] does on a kernel without links to devices.
fn attach(
    bench: &mut Bench,
    hook: &Hook,
    loaded: &std::os::fd::OwnedFd,
) -> Result<Attached, TcError> {
    let (directory, route) = (bench.pins.devices(), &mut bench.route);
    if !tcx::is_there(hook)? {
        return tc::attach(hook, program(loaded), &directory, route);
    }
    clsact::attach(hook, program(loaded), &directory, route)?;
    Ok(Attached {
        hook: hook.clone(),
        way: Way::Clsact,
    })
}

#[test]
fn a_program_is_swapped_without_a_gap_and_nothing_is_left_of_it() {
    with_devices(|bench| {
        let first = ours();
        let hook = bench.out.clone();
        let mut attached = attach(bench, &hook, &first).unwrap();
        assert_eq!(bench.pinned(), [format!("{}-clsact", hook.index)]);
        swaps_without_a_gap(bench, &mut attached, &first);
        assert_eq!(bench.names("va"), ["culvert_eth_out"]);
        attached
            .detach(&bench.pins.devices(), &mut bench.route)
            .unwrap();
        assert_eq!(bench.route.qdiscs().unwrap(), []);
        assert!(bench.pinned().is_empty());
    });
}

#[test]
fn a_filter_is_adopted_mended_and_told_from_those_before_it() {
    with_devices(|bench| {
        let (first, second) = (ours(), ours());
        let hook = bench.out.clone();
        attach(bench, &hook, &first).unwrap();
        let mut attached = attach(bench, &hook, &second).unwrap();
        assert_eq!(bench.names("va"), ["culvert_eth_out"]);
        assert_eq!(bench.state(&attached, &second), State::InForce);
        // Those of the same priority that come later run first.
        let late = load_classifier("late").unwrap();
        let mut place = clsact::place(&hook);
        place.handle = 1;
        bench.route.add_filter(place, &late, "late").unwrap();
        let present = attached
            .present(program(&second), &mut bench.route)
            .unwrap();
        assert_eq!(present.state, State::InForce);
        assert_eq!(present.before[0].name.as_deref(), Some("late"));
        bench.route.delete_filter(clsact::place(&hook)).unwrap();
        assert_eq!(bench.state(&attached, &second), State::Detached);
        attached
            .mend(program(&second), &bench.pins.devices(), &mut bench.route)
            .unwrap();
        assert_eq!(bench.state(&attached, &second), State::InForce);
        // What others put there keeps the qdisc.
        attached
            .detach(&bench.pins.devices(), &mut bench.route)
            .unwrap();
        assert_eq!(bench.names("va"), ["late"]);
    });
}

#[test]
fn what_others_made_stays_and_is_named_where_it_is_in_the_way() {
    with_devices(|bench| {
        let first = ours();
        let hook = bench.out.clone();
        bench.route.add_clsact(hook.index).unwrap();
        let attached = attach(bench, &hook, &first).unwrap();
        attached
            .detach(&bench.pins.devices(), &mut bench.route)
            .unwrap();
        assert_eq!(bench.route.qdiscs().unwrap().len(), 1, "not ours");
        let other = load_classifier("cil_to_netdev").unwrap();
        let place = clsact::place(&hook);
        bench
            .route
            .add_filter(place, &other, "cil_to_netdev")
            .unwrap();
        assert_eq!(
            attach(bench, &hook, &first).unwrap_err().to_string(),
            format!(
                "egress of va (device {}): a filter of others (bpf cil_to_netdev) is in the place of \
                 Culvert's filter (priority 1, handle 0xc); remove it, or give it another priority: \
                 tc filter show dev va egress",
                hook.index
            )
        );
        run("tc qdisc del dev va clsact");
        run("tc qdisc add dev va ingress");
        let error = attach(bench, &hook, &first).unwrap_err();
        assert!(matches!(error, TcError::IngressOnly(_)), "{error}");
    });
}

#[test]
fn all_of_ours_is_swept_and_the_qdisc_that_was_made_for_it() {
    with_devices(|bench| {
        let first = ours();
        let kept = bench.out.clone();
        let kept = attach(bench, &kept, &first).unwrap();
        for direction in Direction::BOTH {
            let hook = bench.hook("vb", direction);
            attach(bench, &hook, &first).unwrap();
        }
        let swept = sweep(&[&kept], &bench.pins.devices(), &mut bench.route);
        assert_eq!((swept.detached, swept.problems.len()), (2, 0), "{swept:?}");
        assert_eq!(bench.route.qdiscs().unwrap().len(), 1);
        assert_eq!(bench.state(&kept, &first), State::InForce);
        run("ip link del va");
        let swept = sweep(&[], &bench.pins.devices(), &mut bench.route);
        assert!(swept.problems.is_empty() && !bench.directory().exists());
    });
}
