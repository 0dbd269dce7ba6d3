//! What backends are given, by flags and by the file.

use proxy_backend::Timeouts;

use super::*;

#[test]
fn map_sizes_are_taken_over() {
    let run = run_args(&["--manifests=x", "--node-name=n", "--map-size=SLOTS=7"]).unwrap();
    let sizes: Vec<_> = run.backends.given.texts("map-size").collect();
    assert_eq!(sizes, ["SLOTS=7"]);
    let fields = "culvert: {mapSizes: {SLOTS: 9, TRACK: 10}}\n";
    let of_file = |args: &[&str]| {
        let args = [&["--manifests=x", "--node-name=n"], args].concat();
        let run = run_file(fields, &args).unwrap();
        let sizes = run.backends.given.texts("map-size").map(str::to_owned);
        sizes.collect::<Vec<_>>()
    };
    assert_eq!(of_file(&[]), ["SLOTS=9", "TRACK=10"]);
    // As any flag, it counts instead of the field, and says so.
    assert_eq!(of_file(&["--map-size=SLOTS=7"]), ["SLOTS=7"]);
}

#[test]
fn timeouts_of_connections_are_about_the_node_and_no_matter_of_the_brain() {
    let fields = "conntrack: {tcpEstablishedTimeout: 2h, udpTimeout: 45s}\n";
    let flags = [
        "--target=unix:///run/brain.sock",
        "--conntrack-tcp-timeout-established=0",
        "--conntrack-tcp-timeout-close-wait=10m",
        "--conntrack-udp-timeout-stream=3m",
    ];
    let run = run_file(fields, &flags).unwrap();
    let minutes = |minutes| Some(Duration::from_mins(minutes));
    assert_eq!(
        run.backends.timeouts,
        Timeouts {
            tcp_established: None,
            tcp_close_wait: minutes(10),
            udp: Some(Duration::from_secs(45)),
            udp_stream: minutes(3),
        }
    );
    let shown = &run.agent.serving.configuration["conntrack"];
    assert_eq!(shown["tcpEstablishedTimeout"], "0s");
    assert_eq!(shown["udpStreamTimeout"], "3m0s");
    let none = run_args(&["--manifests=x", "--node-name=n"]).unwrap();
    assert_eq!(none.backends.timeouts, Timeouts::default());
}

#[test]
fn backends_are_given_flags_and_fields_of_the_file() {
    let fields = "culvert: {tc: 'off', devices: [eth0]}\n";
    let args = ["--manifests=x", "--node-name=n", "--map-size=SLOTS=7"];
    let texts = |run: &Run, flag| -> Vec<String> {
        let texts = run.backends.given.texts(flag);
        texts.map(str::to_owned).collect()
    };
    let run = run_file(fields, &args).unwrap();
    assert_eq!(texts(&run, "tc"), ["off"]);
    assert_eq!(texts(&run, "devices"), ["eth0"]);
    assert_eq!(texts(&run, "map-size"), ["SLOTS=7"]);
    assert_eq!(run.agent.serving.configuration["culvert"]["tc"], "off");
    let flags = ["--tc=on", "--tc=auto", "--devices=a,b", "--devices=c*"];
    let run = run_file(fields, &[&args[..], &flags].concat()).unwrap();
    assert_eq!(texts(&run, "tc"), ["auto"]);
    assert_eq!(texts(&run, "devices"), ["a", "b", "c*"]);
    assert_eq!(run.agent.warnings.len(), 2, "{:?}", run.agent.warnings);
    // Whose the cluster is makes no difference to what is about this node.
    let target = "--target=unix:///run/brain.sock";
    let follower = run_file(fields, &[target]).unwrap();
    assert_eq!(texts(&follower, "tc"), ["off"]);
    assert_eq!(follower.agent.warnings, [] as [String; 0]);
    let wrong = ["--tc=maybe", "--map-size=SLOTS=0"];
    let error = run_file("culvert: {devices: [a/b]}\n", &wrong).unwrap_err();
    let named = ["--tc: ", "--map-size: SLOTS=0: ", "--config /"];
    assert_eq!(error.mistakes.len(), named.len(), "{error}");
    for (mistake, named) in error.mistakes.iter().zip(named) {
        assert!(mistake.starts_with(named), "{mistake}");
    }
}
