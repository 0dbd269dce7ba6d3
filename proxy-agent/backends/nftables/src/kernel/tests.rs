//! The backend over a kernel in memory: at no moment a Service is torn, and whatever fails, whoever comes next
//! brings the tables to where they should be.

mod answers;
mod edits;
mod real;
mod recording;
mod tables;

use std::ops::ControlFlow;

use proptest::{
    collection,
    prelude::*,
    sample::{Index, select},
    strategy::ValueTree as _,
    test_runner::TestRunner,
};
use proxy_backend::Translates;
use proxy_model::{Backend, NodeState, SyncError};
use proxy_netlink::{attributes::Read, message::attributes, nf_tables as abi};

use self::{
    edits::edit,
    recording::{Fault, Kernel},
    tables::{Table, Tables, lines},
};
use super::{
    FAMILIES, Lock, NftablesBackend,
    expressions::nfproto,
    socket::{Netlink, question},
    transaction::Transaction,
    wire::Wire,
};
use crate::{
    NftablesOptions, TABLE,
    plan::Plan,
    tests::walk::{Step, state, steps},
    wanted::Wanted,
};

const OPTIONS: NftablesOptions = NftablesOptions {
    mark: 0x4000,
    above: Translates::All,
};

/// The step of a history at which another agent takes over, and adopts.
const HANDED_OVER: usize = 1;

fn agent(kernel: &Kernel) -> NftablesBackend {
    agent_over(kernel.clone(), kernel)
}

/// One whose requests go over `wire`; its lock is of no consequence.
fn agent_over(wire: impl Wire + 'static, kernel: &Kernel) -> NftablesBackend {
    let lock = Lock::held_by(Netlink::over(kernel.clone()).expect("a kernel in memory opens"));
    let netlink = Netlink::over(wire).expect("it is open");
    NftablesBackend::over(netlink, lock, OPTIONS)
}

/// The tables that `state` should have.
fn expected(state: &NodeState) -> Tables {
    let kernel = Kernel::default();
    let mut transaction = Transaction::new(None);
    for family in FAMILIES {
        let (wanted, elements) = Wanted::of(state, family, OPTIONS);
        transaction.write(family, &wanted.fixed, &Plan::whole(&wanted, &elements));
    }
    let (batch, confirmed) = transaction.finish();
    let mut netlink = Netlink::over(kernel.clone()).expect("a kernel in memory opens");
    netlink
        .transact(&batch, confirmed)
        .expect("the kernel takes it");
    kernel.tables()
}

/// Panics with what differs.
fn assert_same(found: &Tables, wanted: &Tables, when: &str) {
    let (found, wanted) = (lines(found), lines(wanted));
    let more: Vec<_> = found.difference(&wanted).collect();
    let less: Vec<_> = wanted.difference(&found).collect();
    assert!(
        more.is_empty() && less.is_empty(),
        "{when}: too much: {more:#?}; missing: {less:#?}"
    );
}

fn met(tables: &Tables) -> Vec<Table> {
    tables.values().map(Table::met).collect()
}

/// Has `agent` lead from `before` to `now`, and looks at every moment on the way.
fn sync(
    kernel: &Kernel,
    agent: &mut NftablesBackend,
    before: Option<&NodeState>,
    now: &NodeState,
    whole: bool,
) -> Result<(), SyncError> {
    let change = match before {
        Some(before) if !whole => before.changes_to(now),
        _ => now.as_change_set(),
    };
    let result = agent.sync(now, &change);
    let moments = [before.map_or_else(Tables::new, expected), expected(now)];
    let moments = moments.each_ref().map(met);
    for tables in kernel.record() {
        let met = met(&tables);
        assert!(
            moments.contains(&met),
            "neither what was nor what is to be: {met:#?}\n{moments:#?}"
        );
    }
    result.map(drop)
}

/// Runs `steps` with `fault` at the request with this number, and comes back after it as the pipeline
/// does.
fn walk(steps: &[Step], at: usize, fault: Fault) {
    let kernel = Kernel::default();
    kernel.fail(at, fault);
    let mut agent_now = agent(&kernel);
    let (mut before, mut behind) = (None, true);
    for (number, Step(now)) in steps.iter().enumerate() {
        if number == HANDED_OVER {
            agent_now = agent(&kernel);
            behind = true;
        }
        let mut attempts = 0;
        while let Err(error) = sync(&kernel, &mut agent_now, before, now, behind) {
            attempts += 1;
            assert!(attempts < 2, "a second time: {error}");
            if kernel.was_killed() {
                agent_now = agent(&kernel);
            }
            behind = true;
        }
        // It may have died when all was done but the tidying up.
        if kernel.was_killed() {
            agent_now = agent(&kernel);
            sync(&kernel, &mut agent_now, Some(now), now, true).expect("a new agent adopts");
        }
        (before, behind) = (Some(now), false);
    }
    // What could not be deleted at once is deleted by whoever reads the tables next.
    let last = before.expect("there is a step");
    let mut next = agent(&kernel);
    sync(&kernel, &mut next, before, last, true).expect("a new agent adopts");
    assert_same(&kernel.tables(), &expected(last), "in the end");
    assert_eq!(next.differences(last), Ok(Vec::new()));
}

fn fault() -> impl Strategy<Value = Fault> {
    let errno = [
        libc::ENOMEM,
        libc::ENOBUFS,
        libc::EINTR,
        libc::EBUSY,
        libc::ENOENT,
    ];
    prop_oneof![
        Just(Fault::Lost),
        Just(Fault::Interrupted),
        Just(Fault::KilledBefore),
        Just(Fault::KilledAfter),
        select(errno.to_vec()).prop_map(Fault::Refused),
    ]
}

/// How many requests `steps` take if nothing fails.
fn requests(steps: &[Step]) -> usize {
    let kernel = Kernel::default();
    let mut agent_now = agent(&kernel);
    let mut before = None;
    for (number, Step(now)) in steps.iter().enumerate() {
        if number == HANDED_OVER {
            agent_now = agent(&kernel);
        }
        let whole = number == HANDED_OVER;
        sync(&kernel, &mut agent_now, before, now, whole).expect("nothing fails");
        assert_same(&kernel.tables(), &expected(now), "after a step");
        assert_eq!(agent_now.counts.failed, 0, "the kernel takes it");
        before = Some(now);
    }
    kernel.requests()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn no_write_tears_a_service_and_every_fault_can_be_continued(
        steps in steps(),
        faults in collection::vec((any::<Index>(), fault()), 4),
    ) {
        let requests = requests(&steps);
        for (at, fault) in faults {
            walk(&steps, at.index(requests), fault);
        }
    }

    #[test]
    fn what_another_process_changes_is_repaired(
        steps in steps(),
        edits in collection::vec((edit(), any::<Index>()), 1..4),
    ) {
        let kernel = Kernel::default();
        let mut agent = agent(&kernel);
        let Step(state) = &steps[0];
        sync(&kernel, &mut agent, None, state, true).expect("nothing fails");
        for (edit, at) in edits {
            kernel.edit(|tables| edit.make(tables, at));
            let changed = kernel.tables() != expected(state);
            let repaired = agent.repair(state).expect("nothing fails").repaired;
            prop_assert_eq!(repaired.is_empty(), !changed, "{:?}: {:?}", edit, repaired);
            agent.tend(state);
            assert_same(&kernel.tables(), &expected(state), &format!("{edit:?}"));
            let again = agent.repair(state).expect("nothing fails");
            prop_assert_eq!(again.repaired, vec![]);
        }
    }
}

/// How often rules were changed in the network namespace of `wire`.
fn generation(wire: &mut impl Wire) -> u32 {
    let request = question(0, abi::NFT_MSG_GETGEN, 0, |_| {});
    let mut generation = None;
    let came = wire.exchange(&request, &mut |_, message| {
        generation = Read(attributes(message)).number(abi::NFTA_GEN_ID);
        ControlFlow::Break(())
    });
    came.expect("the kernel answers");
    generation.expect("it has a generation")
}

/// The same states each time.
fn history(steps: usize) -> Vec<Step> {
    let mut runner = TestRunner::deterministic();
    let steps = collection::vec(state(), steps);
    steps.new_tree(&mut runner).expect("a history").current()
}

/// The kill of every request of a history, one after the other.
#[test]
fn an_agent_may_be_killed_at_any_request() {
    let steps = history(4);
    let requests = requests(&steps);
    assert!(requests > 60, "{requests}");
    for at in 0..requests {
        walk(&steps, at, Fault::KilledBefore);
        walk(&steps, at, Fault::KilledAfter);
    }
}

/// Between any two requests of an agent that adopts and then follows a change.
#[test]
fn what_another_process_changes_meanwhile_is_never_missed() {
    let steps = history(3);
    let [Step(first), Step(second), Step(third)] = &steps[..] else {
        panic!("three steps");
    };
    for at in 0.. {
        let kernel = Kernel::default();
        sync(&kernel, &mut agent(&kernel), None, first, true).expect("nothing fails");
        kernel.fail(at, Fault::Outrun);
        let requests = kernel.requests();
        let mut agent = agent(&kernel);
        agent
            .sync(second, &second.as_change_set())
            .expect("it is read again");
        if !kernel.is_outrun() {
            assert_same(
                &kernel.tables(),
                &expected(second),
                &format!("adopted, {at}"),
            );
        }
        agent
            .sync(third, &second.changes_to(third))
            .expect("it is written, or read again");
        agent.repair(third).expect("nothing fails");
        agent.tend(third);
        assert_same(&kernel.tables(), &expected(third), &format!("at {at}"));
        if kernel.requests() - requests <= at {
            return;
        }
    }
}

#[test]
fn what_changes_while_it_is_read_is_read_again() {
    let Step(state) = &history(1)[0];
    let kernel = Kernel::default();
    let mut agent = agent(&kernel);
    sync(&kernel, &mut agent, None, state, true).expect("nothing fails");
    for at in 0.. {
        // Of another table.
        kernel.edit(|_| {});
        kernel.fail(at, Fault::Interrupted);
        let requests = kernel.requests();
        let repaired = agent.repair(state).expect("it is read again").repaired;
        assert_eq!(repaired, vec![], "at {at}");
        if kernel.requests() - requests <= at {
            return;
        }
    }
}

/// Kernels before 6.2 let some chains go late.
#[test]
fn a_chain_that_cannot_be_deleted_yet_holds_up_no_other() {
    let table = |tables: &Tables| tables[&(nfproto(FAMILIES[0]), TABLE.to_owned())].clone();
    let several = history(20).into_iter().find_map(|Step(state)| {
        let mut empty = state.clone();
        empty.services.clear();
        let bare = table(&expected(&empty)).chains;
        let mut of_services = table(&expected(&state)).chains;
        of_services.retain(|name, _| !bare.contains_key(name));
        // One that leads to no other of them.
        let mut ends = of_services.iter().filter(|(_, chain)| {
            let mut to = chain.rules.iter().flat_map(|rule| &rule.chains);
            to.all(|name| bare.contains_key(name))
        });
        let (held, _) = ends.next().filter(|_| of_services.len() > 1)?;
        Some((state, empty, held.clone()))
    });
    let (state, empty, held) = several.expect("a state with two chains of Services");
    let kernel = Kernel::default();
    let mut agent = agent(&kernel);
    sync(&kernel, &mut agent, None, &state, true).expect("nothing fails");
    kernel.hold(Some(held.clone()));
    sync(&kernel, &mut agent, Some(&state), &empty, false).expect("nothing fails");
    let mut left = table(&kernel.tables());
    assert!(left.chains.remove(&held).is_some());
    assert_eq!(left, table(&expected(&empty)), "the others are gone");
    kernel.hold(None);
    agent.tend(&empty);
    assert_same(
        &kernel.tables(),
        &expected(&empty),
        "when it can be deleted",
    );
}

/// To whom a table belongs the kernel tells, but not to whom it belonged a moment ago.
#[test]
fn a_table_that_was_let_go_is_tried_again_and_rights_that_are_missing_are_not() {
    let steps = history(1);
    let [Step(state)] = &steps[..] else {
        panic!("{steps:?}");
    };
    let denied = libc::EPERM;
    for (fault, lasts) in [
        (Fault::Refused(denied), false),
        (Fault::AllRefused(denied, libc::ENOBUFS), false),
        (Fault::AllRefused(denied, denied), true),
    ] {
        let ended = (0..requests(&steps)).filter_map(|at| {
            let kernel = Kernel::default();
            kernel.fail(at, fault);
            sync(&kernel, &mut agent(&kernel), None, state, true).err()
        });
        let ended: Vec<_> = ended.collect();
        assert!(!ended.is_empty(), "{fault:?}");
        for error in ended {
            assert_eq!(matches!(error, SyncError::Fatal { .. }), lasts, "{error}");
        }
    }
}
