//! The backend beside somebody else who writes rules: a second agent, whoever flushes all of them,
//! and whoever holds what is to be deleted.

use std::{
    thread,
    time::{Duration, Instant},
};

use proxy_backend::OpenError;
use proxy_backend_nftables::{self as nftables, Duty, NftablesBackend, NftablesOptions};
use proxy_model::{Backend as _, NodeState, SyncError};

use super::owner::TableOwner;
use super::rig::{LIMIT, has_chain, in_namespace, nft, nft_done, open, services};

fn holder() -> Option<String> {
    nftables::holder(Duty::Rules).unwrap()
}

/// A program that another test is just starting has the descriptors of this process until it begins.
fn until_let_go() {
    let end = Instant::now() + LIMIT;
    while let Some(holder) = holder() {
        assert!(Instant::now() < end, "{holder} still holds it");
        thread::yield_now();
    }
}

fn held_by() -> Option<String> {
    match NftablesBackend::open(NftablesOptions {
        mark: 0x4000,
        ..NftablesOptions::default()
    }) {
        Ok(_) => None,
        Err(OpenError::Held { holder, .. }) => Some(holder),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn one_backend_has_a_namespace_to_itself_for_as_long_as_it_lives() {
    in_namespace(|| {
        assert_eq!(holder(), None);
        let backend = open();
        let who = holder().unwrap();
        let process = format!("process {} of ", std::process::id());
        assert!(who.starts_with(&process), "{who}");
        assert_eq!(held_by().as_ref(), Some(&who));
        // Nobody else can take it away.
        nft_done(&["flush", "ruleset"]);
        assert!(
            !nft(&["delete", "table", "ip", "culvert-lock"])
                .status
                .success()
        );
        let listed = nft(&["list", "table", "ip", "culvert-lock"]);
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        assert!(listed.contains(&format!("comment \"{who}\"")), "{listed}");
        assert_eq!(holder(), Some(who));
        drop(backend);
        until_let_go();
        // What was listed while it was held, and put back, locks nothing.
        nft_done(&["add", "table", "ip", "culvert-lock"]);
        assert_eq!(holder(), None);
        let backend = open();
        assert!(holder().is_some());
        drop(backend);
        until_let_go();
    });
}

#[test]
fn a_flush_is_noticed_whatever_a_comparison_costs() {
    in_namespace(|| {
        let mut backend = open();
        let state = services(2000, false, 8080);
        backend.sync(&state, &state.as_change_set()).unwrap();
        assert!(!backend.disturbed(), "nobody was there");
        for (what, script) in [
            ("flush", "flush ruleset"),
            ("delete", "delete table ip6 culvert"),
            ("insert", "insert rule ip culvert dnat-output drop"),
            ("dormant", "add table ip culvert { flags dormant; }"),
        ] {
            // Somebody changes rules of their own, just after all was compared.
            for attempt in 0.. {
                assert!(attempt < 10, "a second comparison should be put off");
                assert_eq!(backend.differences(&state), Ok(vec![]), "{what}");
                nft_done(&["add", "table", "ip", &format!("theirs-{what}-{attempt}")]);
                if !backend.disturbed() {
                    break;
                }
            }
            nft_done(&[script]);
            assert!(backend.disturbed(), "{what}");
            backend.repair(&state).unwrap();
            assert_eq!(backend.differences(&state), Ok(vec![]), "{what}");
            assert!(!backend.disturbed(), "{what}");
        }
    });
}

#[test]
fn what_somebody_holds_is_deleted_when_it_is_let_go() {
    in_namespace(|| {
        let mut backend = open();
        let many = services(300, true, 8080);
        backend.sync(&many, &many.as_change_set()).unwrap();
        let of_services = || {
            let listed = nft(&["list", "table", "ip", "culvert"]);
            let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
            let names = listed.lines().filter_map(|line| {
                let name = line.trim().strip_prefix("chain ")?.strip_suffix(" {")?;
                name.starts_with("sticky").then(|| name.to_owned())
            });
            names.collect::<Vec<_>>()
        };
        let chains = of_services();
        assert!(chains.len() >= 300, "{chains:?}");
        let held = &chains[chains.len() / 2];
        nft_done(&["add", "chain", "ip", "culvert", "mine"]);
        nft_done(&["add", "rule", "ip", "culvert", "mine", "jump", held]);

        let none = NodeState::default();
        backend.sync(&none, &many.changes_to(&none)).unwrap();
        // It holds no other, however many there is time for at once.
        tended_until(&mut backend, &none, || of_services().len() == 1);
        assert_eq!(of_services(), std::slice::from_ref(held));
        nft_done(&["flush", "chain", "ip", "culvert", "mine"]);
        tended_until(&mut backend, &none, || !has_chain(held));
    });
}

/// The owner asks about every second; nothing tells when that was enough, and no change comes.
fn tended_until(backend: &mut NftablesBackend, state: &NodeState, done: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(2);
    while !done() {
        assert!(Instant::now() < deadline, "still there");
        backend.tend(state);
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Until that process ends, the kernel lets nobody else change the table.
#[test]
fn a_table_that_another_process_owns_is_waited_for_and_named() {
    in_namespace(|| {
        let mut backend = open();
        let state = services(1, false, 8080);
        backend.sync(&state, &state.as_change_set()).unwrap();
        let other = TableOwner::here("ip6 culvert").unwrap();

        let named = "table ip6 culvert belongs to another process";
        for error in [
            backend.repair(&state).unwrap_err(),
            backend.sync(&state, &state.as_change_set()).unwrap_err(),
        ] {
            assert!(matches!(error, SyncError::Retry { .. }), "{error:?}");
            assert!(error.to_string().contains(named), "{error}");
        }
        drop(backend);
        let refused = nftables::cleanup().unwrap_err().to_string();
        assert!(refused.contains(named), "{refused}");

        other.release().unwrap();
        let mut backend = open();
        backend.sync(&state, &state.as_change_set()).unwrap();
        assert_eq!(backend.differences(&state), Ok(vec![]));
    });
}
