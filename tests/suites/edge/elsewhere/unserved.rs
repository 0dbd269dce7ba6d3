//! An endpoint elsewhere that is reached by a device without programs.

use proxy_tests::Agent;

use super::{
    super::{
        asked::asked,
        rig::{FILE, options, prober, served},
    },
    Site,
};

/// A node that serves the device of clients alone.
fn serve(site: &Site) -> Agent<'_> {
    let objects = site.objects();
    let alone = options(&["--keep-client-address", "--devices=ext1"]);
    let mut agent = Agent::start(&site.shop.world, alone, &[(FILE, &*objects)]).unwrap();
    served(&mut agent, "ext1");
    agent
}

#[test]
fn behind_a_device_that_is_not_served_an_endpoint_is_the_layer_beneaths() {
    let Some(site) = Site::build() else {
        return;
    };
    let agent = serve(&site);
    let mut client = prober(&site.client);
    for (transport, to) in site.all() {
        for attempt in client.send(transport, to, 3).unwrap() {
            attempt
                .answer_as(to)
                .unwrap_or_else(|error| panic!("{to}: {error}"));
            let seen = attempt.client.unwrap().ip();
            assert!(site.other.node.contains(&seen), "{to}: {attempt:?}");
        }
    }
    assert_eq!(site.sources(&agent), []);
    let text = asked(&site.shop, &agent, &["stats"]);
    let counted = ["ext1", "no-source", "24"];
    let mut lines = text.lines();
    assert!(
        lines.any(|line| line.split_whitespace().eq(counted)),
        "{text}"
    );
}
