//! Names of API servers are resolved in the image, where nothing but the agent is: from the hosts
//! file, and by asking a DNS server.

use std::{
    fs,
    net::{Ipv4Addr, UdpSocket},
    path::Path,
    thread,
};

use proxy_tests::{
    Agent, AgentOptions, Shop,
    agent::Rights,
    container::{Capability, Volume},
};

use super::{Image, api_server, assert_serves, container, is_root_here, mount};

const IN_HOSTS: &str = "api.in-hosts.test";
const IN_DNS: &str = "api.in-dns.test";

/// A server that knows one name, as loopback; it ends with this process.
fn dns(shop: &Shop) {
    let bind = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 53)).unwrap();
    let socket = shop.world.node().netns().run(bind).unwrap();
    thread::spawn(move || {
        let mut asked = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut asked) {
            socket.send_to(&answer(&asked[..length]), from).ok();
        }
    });
}

/// The answer to a question for an address: RFC 1035, section 4.
fn answer(asked: &[u8]) -> Vec<u8> {
    let end = 12 + asked[12..].iter().position(|byte| *byte == 0).unwrap() + 5;
    let question = &asked[12..end];
    let name: Vec<u8> = IN_DNS
        .split('.')
        .flat_map(|label| [&[u8::try_from(label.len()).unwrap()], label.as_bytes()].concat())
        .chain([0])
        .collect();
    let known = question.starts_with(&name);
    let for_v4 = question[question.len() - 4..] == [0, 1, 0, 1];
    // An answer, by who may resolve further; of an unknown name, that there is none.
    let code = if known { 0x80 } else { 0x83 };
    let mut answer = vec![asked[0], asked[1], 0x81, code, 0, 1];
    answer.extend([0, u8::from(known && for_v4), 0, 0, 0, 0]);
    answer.extend(question);
    if known && for_v4 {
        // The name of the question, an address, for a minute, four bytes.
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
    }
    answer
}

#[test]
fn names_come_from_the_hosts_file_and_from_dns() {
    if !is_root_here() {
        return;
    }
    let image = Image::unpack("");
    let files = tempfile::tempdir().unwrap();
    let mut container = container(&image, &[Capability::CAP_NET_ADMIN]);
    for (name, text) in [
        ("hosts", format!("127.0.0.1 localhost {IN_HOSTS}\n")),
        ("resolv.conf", "nameserver 127.0.0.1\n".to_owned()),
    ] {
        let from = files.path().join(name);
        fs::write(&from, text).unwrap();
        let to = Path::new("/etc").join(name);
        mount(&mut container, Volume::to_read(from, to));
    }
    let shop = Shop::routed().unwrap();
    dns(&shop);
    let server = api_server(&shop);
    for name in [IN_HOSTS, IN_DNS] {
        let url = format!("http://{name}:{}", server.address().port());
        let options = AgentOptions {
            source: vec!["--master".to_owned(), url],
            arguments: vec!["--proxy-mode=nftables".to_owned()],
            rights: Rights::Exactly(container.clone()),
            ..AgentOptions::default()
        };
        let mut agent = Agent::prepare(&shop.world, options, &[]).unwrap();
        agent.launch().unwrap();
        assert_serves(&shop);
        agent.terminate().unwrap();
    }
}
