//! By links: Linux 6.6 and later.

use std::fs;

use super::{Bench, Direction, State, id, ours, program, run, swaps_without_a_gap, with_devices};
use crate::kernel::{
    syscalls::{self, TcxHook, attach_tcx, load_classifier},
    tc::{By, Way, attach, sweep::sweep},
};

/// Whether this kernel has links to devices.
fn is_there(bench: &Bench) -> bool {
    let there = super::super::tcx::is_there(&bench.out).unwrap();
    if !there {
        eprintln!("SKIPPED: links to devices take Linux 6.6");
    }
    there
}

fn with_links(test: impl FnOnce(&mut Bench) + Send + 'static) {
    with_devices(|bench| {
        if is_there(bench) {
            test(bench);
        }
    });
}

#[test]
fn a_program_is_swapped_without_a_gap_and_nothing_is_left_of_it() {
    with_links(|bench| {
        let first = ours();
        let out = bench.out.clone();
        let attached = attach(
            &out,
            program(&first),
            &bench.pins.devices(),
            &mut bench.route,
        );
        let mut attached = attached.unwrap();
        assert!(matches!(attached.way, Way::Tcx(_)));
        assert_eq!(&attached.hook, &out);
        swaps_without_a_gap(bench, &mut attached, &first);
        assert_eq!(bench.pinned(), [format!("{}-egress", out.index)]);
        attached
            .detach(&bench.pins.devices(), &mut bench.route)
            .unwrap();
        assert!(bench.found("va").is_empty() && bench.pinned().is_empty());
    });
}

#[test]
fn what_is_pinned_is_adopted_and_ours_is_first() {
    with_links(|bench| {
        let other = load_classifier("cil_to_netdev").unwrap();
        let _other = attach_tcx(&other, bench.out.index, TcxHook::Egress).unwrap();
        let out = bench.out.clone();
        let first = ours();
        let attached = attach(
            &out,
            program(&first),
            &bench.pins.devices(),
            &mut bench.route,
        );
        let before = attached.unwrap().by().unwrap();
        assert_eq!(bench.names("va"), ["culvert_eth_out", "cil_to_netdev"]);
        // The agent ended; what it held goes on.
        let second = ours();
        let attached = attach(
            &out,
            program(&second),
            &bench.pins.devices(),
            &mut bench.route,
        );
        let mut attached = attached.unwrap();
        assert_eq!(attached.by().unwrap(), before);
        assert_eq!(bench.state(&attached, &second), State::InForce);
        // Somebody comes before.
        let late = load_classifier("late").unwrap();
        let late_link = attach_tcx(&late, out.index, TcxHook::Egress).unwrap();
        let present = attached
            .present(program(&second), &mut bench.route)
            .unwrap();
        let names: Vec<_> = present
            .before
            .iter()
            .map(|found| found.name.clone())
            .collect();
        assert_eq!(names, [Some("late".to_owned())]);
        assert_eq!(present.before[0].program, id(&late));
        drop(late_link);
        // Somebody detaches it, and removes the pin.
        let Way::Tcx(link) = &attached.way else {
            unreachable!()
        };
        syscalls::detach(link).unwrap();
        fs::remove_file(bench.directory().join(format!("{}-egress", out.index))).unwrap();
        assert_eq!(bench.state(&attached, &second), State::Detached);
        assert!(!attached.is_pinned(&bench.directory()));
        attached
            .mend(program(&second), &bench.pins.devices(), &mut bench.route)
            .unwrap();
        assert_eq!(bench.state(&attached, &second), State::InForce);
        assert!(attached.is_pinned(&bench.directory()));
    });
}

#[test]
fn a_link_to_a_device_that_is_gone_is_replaced_or_swept() {
    with_links(|bench| {
        let first = ours();
        run("ip link add vc index 77 type veth peer name vd");
        let hook = bench.hook("vc", Direction::Ingress);
        let attach_it = |bench: &mut Bench| {
            attach(
                &hook,
                program(&first),
                &bench.pins.devices(),
                &mut bench.route,
            )
        };
        let attached = attach_it(bench).unwrap();
        run("ip link del vc");
        assert_eq!(bench.state(&attached, &first), State::Detached);
        let error = attach_it(bench).unwrap_err();
        assert!(error.device_is_gone(), "{error}");
        assert_eq!(
            error.to_string(),
            "asking which programs are at ingress of vc (device 77): No such device (os error 19); \
             the device is gone"
        );
        run("ip link add vc index 77 type veth peer name vd");
        let anew = attach_it(bench).unwrap();
        assert_eq!(bench.state(&anew, &first), State::InForce);
        run("ip link del vc");
        attached
            .detach(&bench.pins.devices(), &mut bench.route)
            .unwrap();
        assert_eq!(
            bench.pinned(),
            ["77-ingress"],
            "which leads to the newer link"
        );
        let swept = sweep(&[], &bench.pins.devices(), &mut bench.route);
        assert!(swept.problems.is_empty() && bench.pinned().is_empty());
    });
}

#[test]
fn a_device_that_moved_away_is_not_this_one() {
    with_links(|bench| {
        let first = ours();
        let out = bench.out.clone();
        let attach_it = |bench: &mut Bench| {
            attach(
                &out,
                program(&first),
                &bench.pins.devices(),
                &mut bench.route,
            )
        };
        let attached = attach_it(bench).unwrap();
        let elsewhere = std::process::Command::new("unshare")
            .args(["-n", "sleep", "20"])
            .spawn();
        let mut elsewhere = elsewhere.unwrap();
        std::thread::sleep(std::time::Duration::from_millis(200));
        run(&format!("ip link set va netns {}", elsewhere.id()));
        let Way::Tcx(link) = &attached.way else {
            unreachable!()
        };
        eprintln!("after the move: {:?}", syscalls::tcx_link(link).unwrap());
        assert_eq!(bench.state(&attached, &first), State::Detached);
        assert!(attach_it(bench).unwrap_err().device_is_gone());
        attached
            .detach(&bench.pins.devices(), &mut bench.route)
            .unwrap();
        assert!(bench.pinned().is_empty());
        elsewhere.kill().unwrap();
        elsewhere.wait().unwrap();
    });
}

#[test]
fn all_of_ours_is_found_where_pins_are_lost_and_nothing_of_others() {
    with_links(|bench| {
        let other = load_classifier("cil_to_netdev").unwrap();
        let _other = attach_tcx(&other, bench.out.index, TcxHook::Egress).unwrap();
        let (lost, kept) = (ours(), ours());
        let _lost = attach_tcx(&lost, bench.out.index, TcxHook::Egress).unwrap();
        let hook = bench.hook("vb", Direction::Ingress);
        let kept_at = attach(
            &hook,
            program(&kept),
            &bench.pins.devices(),
            &mut bench.route,
        );
        let kept_at = kept_at.unwrap();
        let swept = sweep(&[&kept_at], &bench.pins.devices(), &mut bench.route);
        assert_eq!((swept.detached, swept.problems.len()), (1, 0), "{swept:?}");
        assert_eq!(bench.names("va"), ["cil_to_netdev"]);
        assert_eq!(bench.state(&kept_at, &kept), State::InForce);
        assert!(kept_at.is_pinned(&bench.directory()));
        let swept = sweep(&[], &bench.pins.devices(), &mut bench.route);
        assert_eq!((swept.detached, swept.problems.len()), (1, 0), "{swept:?}");
        assert!(bench.found("vb").is_empty() && !bench.directory().exists());
        assert!(matches!(bench.found("va")[0].by, By::Tcx(Some(_))));
    });
}
