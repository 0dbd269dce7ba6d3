//! The order that the API promises, and what becomes of a brain that does not keep to it.

use prost::Message as _;

use super::gather::Gathering;
use crate::{Batch, DecodeError, tests::states, wire, wire::operation::Operation as Of};

/// Lets `bytes` in wherever bytes come in.
pub fn swallow(bytes: &[u8]) {
    if let Ok(operation) = wire::Operation::decode(bytes) {
        for resumed in [false, true] {
            let mut gathering = Gathering::of_watch(resumed);
            drop(gathering.take(operation.clone()));
            drop(gathering.take(operation.clone()));
        }
    }
    if let Ok(part) = wire::NextPart::decode(bytes) {
        let mut gathering = Gathering::of_next();
        drop(gathering.take_part(part.clone()));
        drop(gathering.take_part(part));
        drop(gathering.end_of_next());
    }
    if let Ok(report) = wire::ReportRequest::decode(bytes) {
        drop(crate::convert::reports::failures(report.failures));
        drop(
            report
                .client
                .as_ref()
                .map(crate::convert::reports::capabilities),
        );
    }
}

fn reset() -> Of {
    Of::Reset(wire::Reset {})
}

fn sync(revision: u64) -> Of {
    Of::Sync(wire::Sync {
        token: Some(wire::Token {
            instance_id: 7,
            revision,
        }),
        triggers: vec![],
    })
}

fn items() -> Vec<Of> {
    let mut whole = crate::server::Whole::of(states::numbered(2, 1));
    let mut all = Vec::new();
    loop {
        let some = whole.next_items();
        if some.is_empty() {
            return all;
        }
        let item = |item| Of::Upsert(crate::convert::encode::item(item));
        all.extend(some.iter().map(item));
    }
}

fn delete() -> Of {
    let key = states::numbered(1, 1)
        .services
        .keys()
        .next()
        .unwrap()
        .clone();
    Of::Delete(crate::convert::encode::key(&crate::ItemKey::ServicePort(
        key,
    )))
}

fn take(resumed: bool, all: Vec<Of>) -> Result<Vec<Batch>, DecodeError> {
    let mut gathering = Gathering::of_watch(resumed);
    let mut batches = Vec::new();
    for operation in all {
        let operation = Some(operation);
        batches.extend(gathering.take(wire::Operation { operation })?);
    }
    Ok(batches)
}

#[test]
fn a_batch_is_whole_or_nothing() {
    let mut all = vec![reset()];
    all.extend(items());
    assert_eq!(take(false, all.clone()), Ok(vec![]));
    all.extend([sync(1), delete(), sync(2), delete()]);
    let batches = take(false, all).unwrap();
    let shapes: Vec<_> = batches
        .iter()
        .map(|one| (one.reset, one.operations.len(), one.token.revision))
        .collect();
    assert_eq!(shapes, [(true, 3, 1), (false, 1, 2)]);
}

#[test]
fn a_brain_that_breaks_the_order_is_not_believed() {
    let item = || items().remove(1);
    for (resumed, all, expected) in [
        (false, vec![item()], "upsert: came before a reset"),
        (false, vec![delete()], "delete: came before a reset"),
        (false, vec![sync(1)], "sync: came before a reset"),
        (false, vec![reset(), item(), sync(1)], "sync: ends a state"),
        (false, vec![reset(), reset()], "reset: may only come first"),
        (true, vec![item(), reset()], "reset: may only come first"),
        (
            true,
            vec![Of::Sync(wire::Sync::default())],
            "sync.token: is required",
        ),
    ] {
        let error = take(resumed, all).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{expected}: {error}");
    }
}

#[test]
fn an_answer_to_next_begins_with_its_token() {
    use wire::next_part::Part;
    let token = || Part::Next(wire::Token::default());
    let item = || {
        Part::Item(match items().remove(0) {
            Of::Upsert(item) => item,
            other => panic!("{other:?}"),
        })
    };
    for (parts, expected) in [
        (vec![item()], Some("next: must be the first part")),
        (vec![token(), token()], Some("next: must be the first part")),
        (vec![token()], Some("sync: ends a state")),
        (vec![], Some("sync.token: is required")),
        (vec![token(), item()], None),
    ] {
        let mut gathering = Gathering::of_next();
        let result: Result<(), _> = parts
            .into_iter()
            .try_for_each(|part| gathering.take_part(wire::NextPart { part: Some(part) }));
        let result = result.and_then(|()| gathering.end_of_next());
        match (result, expected) {
            (Ok(batch), None) => assert!(batch.reset),
            (Err(error), Some(expected)) => {
                assert!(error.to_string().starts_with(expected), "{error}");
            }
            (result, expected) => panic!("{result:?}, expected {expected:?}"),
        }
    }
}
