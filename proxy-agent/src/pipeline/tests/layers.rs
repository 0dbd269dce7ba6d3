//! Two layers: each by itself.

use super::*;
use proxy_model::{
    PacketLayer::{Absent, Serves, Waits},
    Problem,
};

fn two() -> (Fake, Fake, Pipeline) {
    start_log();
    let [above, beneath] = ["above", "beneath"].map(Fake::named);
    let pipeline = fake::pipeline(&[&above, &beneath]);
    (above, beneath, pipeline)
}

#[test]
fn every_layer_gets_every_change_and_the_one_beneath_first() {
    let (above, beneath, mut pipeline) = two();
    let held = above.hold();
    let advancing = std::thread::spawn(move || {
        pipeline.take(vec![upsert("a", 1)]).unwrap();
        pipeline
    });
    held.entered();
    assert_eq!(
        beneath.calls(),
        [call(true, &["+a"])],
        "before the one above"
    );
    drop(held);
    let mut pipeline = advancing.join().unwrap();
    assert_eq!(above.calls(), [call(true, &["+a"])]);
    pipeline.take(vec![upsert("b", 2)]).unwrap();
    for fake in [above, beneath] {
        assert_eq!(fake.calls(), [call(false, &["+b"])]);
    }
    assert_eq!(pipeline.revision(), 2);
}

#[test]
fn a_layer_that_fails_for_long_keeps_no_change_from_the_others() {
    for fails_above in [true, false] {
        let (above, beneath, mut pipeline) = two();
        let (fails, well) = if fails_above {
            (&above, &beneath)
        } else {
            (&beneath, &above)
        };
        pipeline.take(vec![upsert("a", 1)]).unwrap();
        drop((above.calls(), beneath.calls()));
        fails.answer(retry(Duration::from_secs(20)));
        let start = Instant::now();
        let wait = pipeline.take_at(vec![upsert("b", 2)], start).unwrap();
        assert_eq!(wait, Some(Duration::from_secs(20)));
        for second in 1..20 {
            let now = start + Duration::from_secs(second);
            let event = upsert("b", u8::try_from(second).unwrap() + 2);
            let wait = pipeline.take_at(vec![event], now).unwrap();
            assert_eq!(wait, Some(Duration::from_secs(20 - second)));
            assert!(!pipeline.in_force());
        }
        assert_eq!(well.calls().len(), 20);
        assert_eq!(fails.calls(), [call(false, &["+b"])]);
        assert_eq!(pipeline.revision(), 1);
        // The one that failed is given the whole, nothing of which is new to the other one.
        let advance = pipeline.advance(start + Duration::from_secs(20)).unwrap();
        assert_eq!(fails.calls(), [call(true, &["+a", "+b"])]);
        assert_eq!(well.calls(), []);
        let sync = advance.sync.unwrap();
        assert!(sync.whole && advance.failed.is_empty());
        assert!(pipeline.in_force() && pipeline.revision() == 2);
        assert_eq!(pipeline.due(), None);
    }
}

#[test]
fn a_change_is_in_force_once_it_is_in_every_layer() {
    let (_, beneath, mut pipeline) = two();
    pipeline.take(vec![upsert("a", 1)]).unwrap();
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(7);
    pipeline.fold(vec![Update {
        event: ClusterEvent::SliceUpserted(with_port(slice(1))),
        trigger: Some(at),
    }]);
    pipeline.settle();
    beneath.answer(retry(Duration::from_secs(1)));
    let advance = pipeline.advance_now().unwrap();
    assert_eq!((advance.sync, advance.failed), (None, vec!["beneath"]));
    let layers: Vec<_> = pipeline.layers().map(Layer::in_force).collect();
    assert_eq!(layers, [true, false]);
    let sync = pipeline.advance_now().unwrap().sync.unwrap();
    assert_eq!(sync.triggers, [(IpFamily::V4, at)]);
}

#[test]
fn only_the_disturbed_one_is_compared() {
    let (above, beneath, mut pipeline) = two();
    pipeline.take(vec![upsert("a", 1)]).unwrap();
    let now = Instant::now();
    assert_eq!(pipeline.repair(Which::Disturbed, now), None);
    beneath.disturb();
    let repair = pipeline.repair(Which::Disturbed, now).unwrap();
    assert_eq!(repair.differences, [("beneath", vec![])]);
    let all = pipeline.repair(Which::All, now).unwrap();
    assert_eq!(all.differences, [("above", vec![]), ("beneath", vec![])]);
    // One that has a sync to make looks at everything itself.
    above.answer(retry(Duration::from_secs(1)));
    pipeline.take(vec![upsert("b", 2)]).unwrap();
    beneath.disturb();
    above.disturb();
    let repair = pipeline.repair(Which::Disturbed, now).unwrap();
    assert_eq!(repair.differences, [("beneath", vec![])]);
    beneath.repair(Err(fake::retry("reading: interrupted")));
    let repair = pipeline.repair(Which::All, now).unwrap();
    assert_eq!(repair.failed, ["beneath"]);
    let compared = pipeline.differences();
    assert!(compared.iter().all(|(_, result)| result.is_err()));
}

#[test]
fn what_cannot_be_mended_keeps_a_layer_out_of_force_if_it_decides_about_connections() {
    let (above, _, mut pipeline) = two();
    pipeline.take(vec![upsert("a", 1)]).unwrap();
    let now = Instant::now();
    let mut repair = |harms: &[bool]| {
        let problem = |harms: &bool| Problem {
            reason: format!("harms: {harms}"),
            harms: *harms,
        };
        above.cannot_mend(harms.iter().map(problem).collect());
        let repair = pipeline.repair(Which::All, now).unwrap();
        let first = pipeline.layers().next().unwrap();
        let failure = first.failure().map(str::to_owned);
        (repair.failed, pipeline.in_force(), failure)
    };
    let told = |harms: bool| Some(format!("harms: {harms}"));
    assert_eq!(repair(&[false]), (vec![], true, told(false)));
    assert_eq!(repair(&[true, false]), (vec!["above"], false, told(true)));
    assert_eq!(repair(&[]), (vec![], true, None));
}

#[test]
fn a_layer_that_waits_can_be_hurried() {
    let (above, _, mut pipeline) = two();
    above.answer(retry(Duration::from_hours(1)));
    pipeline.take(vec![upsert("a", 1)]).unwrap();
    let now = Instant::now();
    assert!(pipeline.due().unwrap() > now);
    pipeline.hurry(now);
    assert_eq!(pipeline.due(), Some(now));
    pipeline.advance(now).unwrap();
    assert!(pipeline.in_force());
}

#[test]
fn a_layer_knows_whether_one_beneath_serves() {
    let (above, beneath, mut pipeline) = two();
    beneath.answer(retry(Duration::from_secs(1)));
    pipeline.take(vec![upsert("a", 1)]).unwrap();
    assert_eq!((above.over(), beneath.over()), (vec![Waits], vec![Absent]));
    pipeline.take(vec![]).unwrap();
    // A failure later takes nothing out of the kernel.
    beneath.answer(retry(Duration::from_secs(1)));
    pipeline.take(vec![upsert("b", 2)]).unwrap();
    assert_eq!(above.over(), [Serves, Serves]);
    assert_eq!(beneath.over(), [Absent, Absent]);
}

#[test]
fn what_is_lacking_follows_what_serves() {
    start_log();
    let above = Fake::named("above").lacking(&[Capability::Sctp, Capability::Affinity]);
    let beneath = Fake::named("beneath").lacking(&[Capability::Affinity]);
    let mut pipeline = fake::pipeline(&[&above, &beneath]);
    // What will serve, before anything does.
    assert_eq!(pipeline.lacks(), [Capability::Affinity]);
    beneath.answer(retry(Duration::from_secs(1)));
    pipeline.take(vec![]).unwrap();
    assert_eq!(pipeline.lacks(), [Capability::Sctp, Capability::Affinity]);
    assert!(!pipeline.in_force_for(Capability::Sctp));
    pipeline.take(vec![]).unwrap();
    assert_eq!(pipeline.lacks(), [Capability::Affinity]);
    assert!(pipeline.in_force_for(Capability::Sctp));
    // The one above has nothing to do with it.
    above.answer(retry(Duration::from_secs(1)));
    pipeline.take(vec![upsert("a", 1)]).unwrap();
    assert!(pipeline.in_force_for(Capability::Sctp) && !pipeline.in_force());
}
