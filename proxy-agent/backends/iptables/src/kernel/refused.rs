//! Which Service ports are to blame when what is to be written is refused: the legacy program names no line
//! but the last one. Halves are tried until what is refused is single Service ports, or time is over.
//!
//! Tried is what would be written anyway, in chains to which nothing leads yet, or which come out as they
//! should: what a Service leads to stays as it is until the whole is written.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use proxy_model::{IpFamily, NodeState, ServicePortKey};

use super::programs::{ProgramError, Programs};
use crate::{
    compile::compile,
    facts::Facts,
    restore::Restore,
    rule::Rule,
    table::{MARK, MARK_FOREIGN, TRIAL, Table},
};

/// How long is spent on it: the state of all others waits.
const BUDGET: Duration = Duration::from_secs(20);

/// Finds them, with the reason of each. An error if it is not they, or if it cannot be told.
pub fn find(
    family: IpFamily,
    programs: Programs,
    facts: &Facts,
    state: &NodeState,
    error: ProgramError,
) -> Result<BTreeMap<ServicePortKey, String>, ProgramError> {
    let all: Vec<_> = state
        .services
        .keys()
        .filter(|key| key.family == family)
        .cloned()
        .collect();
    let until = Instant::now() + BUDGET;
    let attempt = |some: &[ServicePortKey]| {
        let restore = trial(facts, state, some);
        programs.restore(family, &restore.text())
    };
    let refused = halve(all, || Instant::now() < until, attempt)?;
    // The chain of the trial is removed; its being there harms nobody.
    let mut restore = Restore::new();
    for table in [Table::Filter, Table::Nat] {
        restore.remove(table, &TRIAL.into());
    }
    programs.restore(family, &restore.text()).ok();
    if refused.is_empty() {
        Err(error)
    } else {
        Ok(refused)
    }
}

/// Tries halves of what is refused. `attempt` is given some.
fn halve(
    all: Vec<ServicePortKey>,
    in_time: impl Fn() -> bool,
    mut attempt: impl FnMut(&[ServicePortKey]) -> Result<(), ProgramError>,
) -> Result<BTreeMap<ServicePortKey, String>, ProgramError> {
    let mut refused = BTreeMap::new();
    let mut waiting = vec![all];
    // None at all: what is refused then is no Service's.
    attempt(&[])?;
    while let Some(mut some) = waiting.pop() {
        if some.is_empty() {
            continue;
        }
        match attempt(&some) {
            Ok(()) => {}
            Err(error) if !error.is_refusal() => return Err(error),
            Err(error) if some.len() == 1 => {
                refused.extend(some.pop().map(|key| (key, error.to_string())));
            }
            Err(error) if !in_time() => {
                let reason = format!(
                    "one of {} Service ports is refused, and which is not known yet: {error}",
                    some.len()
                );
                refused.extend(some.into_iter().map(|key| (key, reason.clone())));
            }
            Err(_) => {
                let half = some.split_off(some.len() / 2);
                waiting.extend([half, some]);
            }
        }
    }
    Ok(refused)
}

/// All that some Service ports need, without leading there.
fn trial(facts: &Facts, state: &NodeState, some: &[ServicePortKey]) -> Restore {
    let mut restore = Restore::new();
    let mut index: BTreeMap<Table, Vec<Rule>> =
        [(Table::Filter, vec![]), (Table::Nat, vec![])].into();
    for (table, name) in [(Table::Nat, MARK), (Table::Nat, MARK_FOREIGN)] {
        let fixed = facts.fixed(state);
        if let Some(rules) = fixed.get(&(table, name)) {
            restore.chain(table, &name.into(), rules);
        }
    }
    for key in some {
        let Some(service) = state.services.get(key) else {
            continue;
        };
        let compiled = compile(facts, key, service);
        for (kind, rule) in compiled.index {
            index.entry(facts.chain_of(kind).0).or_default().push(rule);
        }
        for (name, rules) in compiled.chains {
            restore.chain(Table::Nat, &name, &rules);
        }
    }
    for (table, rules) in index {
        restore.chain(table, &TRIAL.into(), &rules);
    }
    restore
}

#[cfg(test)]
mod tests {
    use proxy_model::{ObjectName, Protocol};

    use super::*;

    fn key(number: usize) -> ServicePortKey {
        ServicePortKey {
            service: ObjectName::new("shop", number.to_string()),
            port: "".into(),
            protocol: Protocol::Tcp,
            family: IpFamily::V4,
        }
    }

    fn refusal() -> ProgramError {
        ProgramError::Refused {
            program: "iptables-restore".to_owned(),
            said: "line 7 failed".to_owned(),
        }
    }

    #[test]
    fn what_is_refused_is_found_among_many() {
        let bad = [key(3), key(700)];
        let mut attempts = 0;
        let all = (0..1000).map(key).collect();
        let found = halve(
            all,
            || true,
            |some| {
                attempts += 1;
                if some.iter().any(|one| bad.contains(one)) {
                    Err(refusal())
                } else {
                    Ok(())
                }
            },
        );
        let found = found.unwrap();
        assert_eq!(found.keys().cloned().collect::<Vec<_>>(), bad);
        assert!(found[&key(3)].contains("line 7"), "{found:?}");
        assert!(attempts < 45, "{attempts}");
    }

    #[test]
    fn what_is_no_services_fault_is_told_and_blames_none() {
        let error = halve(vec![key(1)], || true, |_| Err(refusal())).unwrap_err();
        assert!(error.is_refusal());
    }

    #[test]
    fn when_time_is_over_those_that_are_left_wait_and_the_others_do_not() {
        let all = (0..8).map(key).collect();
        let tries = std::cell::Cell::new(0);
        let found = halve(
            all,
            || tries.get() < 3,
            |some| {
                tries.set(tries.get() + 1);
                if some.contains(&key(0)) {
                    Err(refusal())
                } else {
                    Ok(())
                }
            },
        );
        let found = found.unwrap();
        assert!(
            found.contains_key(&key(0)) && !found.contains_key(&key(7)),
            "{found:?}"
        );
        assert!(found.len() <= 4, "{found:?}");
    }
}
