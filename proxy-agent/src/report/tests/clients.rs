//! What is told of those who follow this agent, and of the brain that it follows.

use std::time::Duration;

use proxy_model::ServiceFailure;

use super::*;
use crate::cluster::Stale;

#[test]
fn clients_are_told_with_what_each_misses() {
    let client = |name: &str, lacks: &[Capability]| ClientFacts {
        name: name.to_owned(),
        connected: true,
        lacks: lacks.to_vec(),
        applied: None,
        behind_for: None,
        failures: vec![],
        more_failures: 0,
        error: None,
    };
    let state = balanced();
    let key = state.services.keys().next().unwrap().clone();
    let good = ClientFacts {
        applied: Some(7),
        ..client("good", LACKS)
    };
    let bad = ClientFacts {
        connected: false,
        applied: Some(5),
        behind_for: Some(Duration::from_millis(61_500)),
        failures: vec![ServiceFailure {
            key,
            reason: "full".to_owned(),
        }],
        more_failures: 8,
        error: Some("no room".to_owned()),
        ..client("bad", &[])
    };
    let agent = |clients| AgentFacts {
        api: Some(ApiFacts {
            revision: 7,
            clients,
        }),
        ..facts(choice::fixtures::lacking(LACKS))
    };
    let served = agent(vec![bad, good, client("looker", &[])]);
    let json: Value = serde_json::from_str(&agent_to_json(&state, &served)).unwrap();
    let expected = json!({ "revision": 7, "clients": [
        { "name": "bad", "connected": false, "lacks": [], "missing": {}, "applied": 5,
          "behindSeconds": 61.5, "failures": [{ "service": "shop/web/TCP/IPv4", "reason": "full" }], "moreFailures": 8,
          "error": "no room" },
        { "name": "good", "connected": true, "lacks": ["external-traffic", "source-ranges"],
          "missing": { "external-traffic": 1, "source-ranges": 1 }, "applied": 7,
          "behindSeconds": null, "failures": [], "moreFailures": 0, "error": null },
        { "name": "looker", "connected": true, "lacks": [], "missing": {}, "applied": null,
          "behindSeconds": null, "failures": [], "moreFailures": 0, "error": null },
    ] });
    assert_eq!(json["agent"]["nodeApi"], expected);
    let text = agent_to_text(&state, &served);
    let expected = "
Clients of the node API, whose newest revision is 7:

CLIENT  CONNECTED  REVISION  BEHIND  MISSING                                  NOT PROGRAMMED
bad     no         5         61s     -                                        9
good    yes        7         -       external-traffic (1), source-ranges (1)  0
looker  yes        -         -       -                                        0
bad: no room
bad: not programmed: shop/web/TCP/IPv4: full
";
    assert!(text.contains(expected), "{text}");
    let alone = agent_to_text(&state, &agent(vec![]));
    assert!(
        alone.contains("\nNo clients of the node API; its newest revision is 7.\n"),
        "{alone}"
    );
    let without: Value = serde_json::from_str(&agent_to_json(
        &state,
        &facts(choice::fixtures::lacking(LACKS)),
    ))
    .unwrap();
    assert_eq!(without["agent"]["nodeApi"], Value::Null);
}

#[test]
fn a_stale_state_says_so() {
    let since = "2026-01-05T09:30:00Z".parse().unwrap();
    let agent = AgentFacts {
        source: "brain unix:///run/x.sock".to_owned(),
        stale: Some(Stale {
            since,
            reason: "it is away".to_owned(),
        }),
        ..facts(choice::fixtures::lacking(LACKS))
    };
    let text = agent_to_text(&small(), &agent);
    let told = "STALE: nothing received since 2026-01-05T09:30:00Z: it is away";
    assert!(text.contains(told), "{text}");
    let json: Value = serde_json::from_str(&agent_to_json(&small(), &agent)).unwrap();
    let expected = json!({ "since": "2026-01-05T09:30:00Z", "reason": "it is away" });
    assert_eq!(json["agent"]["stale"], expected);
}
