//! What a node tells that follows a brain elsewhere: the same answers, and of the story all but
//! what only the brain knows.

use super::*;

fn both(from: &str, to: &str, path: Path) -> [Explanation; 2] {
    let model = model(&Traffic::default());
    let packet = packet(from, to, None).unwrap();
    [
        explain(&model, &packet, path),
        explain(model.state(), &packet, path),
    ]
}

#[test]
fn answers_and_rules_are_the_same_from_the_state_alone() {
    for line in STORIES.lines() {
        let (question, _) = line.split_once(": ").unwrap();
        let [_, from, to, path] = question.split(' ').collect::<Vec<_>>()[..] else {
            panic!("four words: {question}");
        };
        let path = match path {
            "socket" => Path::Socket,
            _ => Path::Packet,
        };
        let [brain, node] = both(from, to, path);
        assert_eq!(node.answer, brain.answer, "{line}");
        for part in ["Rule: ", "Source: ", "Affinity: ", "Source ranges: "] {
            let of = |told: &Explanation| {
                let mut lines = told.story.lines();
                lines.find(|line| line.starts_with(part)).map(str::to_owned)
            };
            assert_eq!(of(&node), of(&brain), "{line}");
        }
    }
}

#[test]
fn the_story_says_what_only_the_brain_knows() {
    let [_, told] = both("192.0.2.7", "10.96.0.1:80/tcp", Path::Packet);
    let expected = "\
Source: is kept: it is not known which sources are local.

ENDPOINT         USED
10.244.0.1:8080  yes
10.244.0.2:8080  yes
Only the brain that this node follows knows which endpoints are left out, and why.

Diagnostics:
  Service shop/web: spec: is odd
";
    assert!(told.story.ends_with(expected), "{}", told.story);
    // None is used.
    let [_, told] = both("10.244.0.9", "10.96.0.3:80/tcp", Path::Packet);
    let expected =
        "node.\n\nOnly the brain that this node follows knows which endpoints are left out";
    assert!(told.story.contains(expected), "{}", told.story);
    // That of shop/lb is, and the node is not told.
    let [brain, told] = both("10.244.0.9", "198.51.100.8:80/tcp", Path::Packet);
    assert!(brain.story.contains("of shop/lb with ipMode Proxy"));
    let expected =
        "Only the brain that this node follows knows whether a load balancer serves it itself";
    assert!(told.story.contains(expected), "{}", told.story);
    // Where there is a hint, that is enough.
    let [_, told] = both("10.244.0.9", "10.96.0.1:80/udp", Path::Packet);
    assert!(!told.story.contains("brain"), "{}", told.story);
}
