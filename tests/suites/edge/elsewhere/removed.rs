//! An address of the node that endpoints elsewhere see in the place of clients goes away.

use std::{net::SocketAddr, time::Duration};

use proxy_tests::pod::Transport;

use super::{
    super::rig::{DNS, prober},
    Site,
};

/// For one datagram, and how many a client sends: twenty seconds.
const LOST: Duration = Duration::from_millis(500);
const TRIES: usize = 40;

#[test]
fn a_client_of_udp_goes_on_once_the_address_that_its_endpoint_sees_is_gone() {
    let Some(site) = Site::build() else {
        return;
    };
    let _agent = site.serve(&[]);
    let mut client = prober(&site.client);
    let to = SocketAddr::new(site.client.node[0], DNS);
    for attempt in client.send_on("udp", Transport::Udp, to, 3).unwrap() {
        site.is_answered(to, &attempt);
    }
    let ([gone, _], [endpoint, _]) = (site.other.node, site.other.addresses);
    let on_link = "route change default dev eth0\n";
    site.other.host.netns().ip(on_link).unwrap();
    let another = format!(
        "addr add 203.0.113.9/24 dev ext2\n\
         route add {endpoint}/32 dev ext2 src 203.0.113.9\n\
         addr del {gone}/30 dev ext2\n"
    );
    site.shop.world.node().netns().ip(&another).unwrap();
    let netns = site.other.host.netns();
    netns.forget_neighbours("eth0").unwrap();
    let answered = (0..TRIES).any(|_| {
        let attempts = client.send_on_within(LOST, "udp", Transport::Udp, to, 1);
        attempts.unwrap()[0].answer_as(to).is_ok()
    });
    assert!(answered, "nothing ends a flow from {gone}");
}
