//! Random changes between random faults end in the right state.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use proxy_tests::api_server::{ApiServer, Disturbance, Fault, Kind, On, Options, Versions};

use super::follower::{Follower, change, mixed, timing, undo};

/// Names the run to repeat.
const SEED: &str = "CULVERT_SEED";

/// Numbers that a seed decides (`SplitMix64`).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        let index = self.below(from.len() as u64);
        from[usize::try_from(index).unwrap()]
    }
}

/// One change of the cluster, which may have no effect.
fn mutate(server: &ApiServer, random: &mut Random) {
    let kind = random.pick(&Kind::ALL);
    let number = u8::try_from(random.below(12)).unwrap();
    let exists = server.objects().iter().any(|object| {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let own = match kind {
            Kind::Service => format!("s{number}"),
            Kind::EndpointSlice => format!("web-s{number}"),
            Kind::ServiceCidr => format!("cidr{number}"),
            Kind::Node => return true,
        };
        object["kind"] == kind.name() && name == own
    });
    if exists && random.below(2) == 0 {
        undo(server, kind, number);
    } else {
        change(server, kind, number);
    }
}

/// One thing that goes wrong.
fn harm(server: &ApiServer, random: &mut Random) {
    let kind = random.pick(&Kind::ALL);
    let on = random
        .pick(&[On::any(), On::list(), On::watch(), On::streaming_list()])
        .kind(kind)
        .times(1);
    let some = (random.below(2) == 0).then_some(kind);
    match random.below(16) {
        0 => server.drop_connections().unwrap(),
        1 => server.restart(Versions::GoOn).unwrap(),
        2 => server.restart(Versions::Forget).unwrap(),
        3 => server.forget_history(),
        4 => server.disturb(some, &Disturbance::End),
        5 => server.disturb(some, &Disturbance::CutNextEvent),
        6 => server.disturb(some, &Disturbance::Expire),
        7 => server.disturb(some, &Disturbance::FallSilent),
        8 => server.disturb(some, &Disturbance::Send("garbage\n".into())),
        9 => server.inject(Fault::CutMidObject, on),
        10 => server.inject(Fault::Expired, on),
        11 => server.inject(Fault::Silent, on),
        12 => {
            let code = random.pick(&[401, 403, 410, 422, 429, 500, 503]);
            // ServiceCIDRs that are not to be seen are a matter of minutes.
            if kind != Kind::ServiceCidr || code != 403 {
                server.inject(Fault::Refused(code, None), on);
            }
        }
        13 => server.inject(Fault::Disconnected, on),
        14 => server.inject(Fault::Slow(100, Duration::from_micros(100)), on),
        _ => server.bookmark(),
    }
}

#[tokio::test]
async fn random_changes_between_random_faults_end_in_the_right_state() {
    let seed = std::env::var(SEED).map_or_else(
        |_| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            now.as_nanos() % 1_000_000_007
        },
        |seed| seed.parse().unwrap(),
    );
    println!("to repeat: {SEED}={seed}");
    let mut random = Random(u64::try_from(seed).unwrap());
    let first = mixed();
    let second = first.beside(Options::default()).unwrap();
    first.set_page(Some(5));
    let mut follower = Follower::start(vec![first.url(), second.url()], timing()).await;
    for round in 0..12 {
        for _ in 0..8 {
            for _ in 0..random.below(6) {
                mutate(&first, &mut random);
            }
            let server = random.pick(&[&first, &second]);
            harm(server, &mut random);
            if random.below(4) == 0 {
                // Lets it get somewhere before the next blow.
                tokio::time::sleep(Duration::from_millis(random.below(30))).await;
            }
            follower.catch_up();
        }
        if random.below(3) == 0 {
            first.clear_faults();
            second.clear_faults();
        }
        println!("round {round}");
        follower.agree(&first).await;
    }
    first.clear_faults();
    second.clear_faults();
    follower.goes_on(&first).await;
}
