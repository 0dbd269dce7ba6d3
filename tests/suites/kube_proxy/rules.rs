//! The rules of an nftables table that kube-proxy made, as `nft list ruleset` prints them, and
//! what they do with a packet. Knows the statements that kube-proxy uses, and fails on any other.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use proxy_model::{
    IpNet, Protocol,
    oracle::{Outcome, Packet},
};

/// One table, `ip kube-proxy` or `ip6 kube-proxy`.
#[derive(Debug, Default)]
pub struct Table {
    chains: BTreeMap<String, Vec<String>>,
    maps: BTreeMap<String, BTreeMap<String, String>>,
    sets: BTreeMap<String, BTreeSet<String>>,
}

/// What becomes of a packet: the endpoints that it may go to, true where it is masqueraded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fate {
    pub outcome: Outcome,
    pub endpoints: BTreeMap<SocketAddr, bool>,
}

impl Fate {
    const fn of(outcome: Outcome) -> Self {
        Self {
            outcome,
            endpoints: BTreeMap::new(),
        }
    }
}

/// A packet on its way through the chains.
struct Journey<'a> {
    packet: &'a Packet,
    is_own: &'a dyn Fn(IpAddr) -> bool,
    mark: bool,
}

/// How a chain ends.
enum End {
    /// Past its last rule.
    Return,
    Stop(Outcome),
    Dnat(Vec<SocketAddr>),
}

impl Table {
    /// Understands the text of one table.
    pub fn parse(text: &str) -> Self {
        let mut table = Self::default();
        let mut block = (String::new(), String::new());
        let mut elements: Option<String> = None;
        for line in text.lines().map(str::trim) {
            if let Some(open) = &mut elements {
                open.push_str(line);
            } else if let Some(first) = line.strip_prefix("elements = {") {
                elements = Some(first.to_owned());
            } else if let Some(header) = line.strip_suffix(" {") {
                let (kind, name) = header.split_once(' ').unwrap_or((header, ""));
                block = (kind.to_owned(), name.to_owned());
                table.begin(&block.0, &block.1);
            } else if block.0 == "chain" && !["", "}"].contains(&line) && !line.starts_with("type ")
            {
                table
                    .chains
                    .get_mut(&block.1)
                    .unwrap()
                    .push(line.to_owned());
            }
            if elements.as_ref().is_some_and(|open| open.ends_with('}')) {
                let all = elements.take().unwrap();
                for element in all.trim_end_matches('}').split(',') {
                    table.element(&block.0, &block.1, element.trim());
                }
            }
        }
        table
    }

    fn begin(&mut self, kind: &str, name: &str) {
        let name = name.to_owned();
        match kind {
            "chain" => drop(self.chains.entry(name).or_default()),
            "map" => drop(self.maps.entry(name).or_default()),
            "set" => drop(self.sets.entry(name).or_default()),
            _ => {}
        }
    }

    fn element(&mut self, kind: &str, name: &str, element: &str) {
        if kind == "set" {
            self.sets.get_mut(name).unwrap().insert(element.to_owned());
            return;
        }
        let (key, verdict) = element.rsplit_once(" : ").unwrap();
        let key = key.split(" comment ").next().unwrap().to_owned();
        let map = self.maps.get_mut(name).unwrap();
        map.insert(key, verdict.to_owned());
    }

    /// Adds an element to a set.
    pub fn insert(&mut self, set: &str, element: IpAddr) {
        self.sets.get_mut(set).unwrap().insert(element.to_string());
    }

    /// Every address and port that one of the maps leads from; NodePorts on each of `node`.
    pub fn destinations(&self, node: &[IpAddr]) -> BTreeSet<(SocketAddr, Protocol)> {
        let mut found = BTreeSet::new();
        for key in self.maps.values().flat_map(BTreeMap::keys) {
            let parts: Vec<_> = key.split(" . ").collect();
            let (addresses, protocol, port) = match parts[..] {
                [address, protocol, port] => (vec![address.parse().unwrap()], protocol, port),
                [protocol, port] => (node.to_vec(), protocol, port),
                _ => panic!("{key}"),
            };
            let protocol = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp]
                .into_iter()
                .find(|known| known.as_str().eq_ignore_ascii_case(protocol));
            let port = port.parse().unwrap();
            for address in addresses {
                found.insert((SocketAddr::new(address, port), protocol.unwrap()));
            }
        }
        found
    }

    /// What becomes of `packet` on a host whose own addresses `is_own` knows.
    pub fn fate(&self, packet: &Packet, is_own: &dyn Fn(IpAddr) -> bool) -> Fate {
        let mut journey = Journey {
            packet,
            is_own,
            mark: false,
        };
        if let End::Stop(outcome) = self.follow("firewall-check", &mut journey) {
            return Fate::of(outcome);
        }
        match self.follow("services", &mut journey) {
            End::Dnat(targets) => {
                let endpoints = targets.into_iter().map(|target| {
                    let hairpin = self.is_hairpin(packet, target);
                    (target, journey.mark || hairpin)
                });
                return Fate {
                    outcome: Outcome::Forward,
                    endpoints: endpoints.collect(),
                };
            }
            End::Stop(outcome) => return Fate::of(outcome),
            End::Return => {}
        }
        // As on the hooks: input has the first two, forward and output the last two.
        let checks: &[&str] = if is_own(packet.destination.ip()) {
            &["nodeport-endpoints-check", "service-endpoints-check"]
        } else {
            &["service-endpoints-check", "cluster-ips-check"]
        };
        for chain in checks {
            if let End::Stop(outcome) = self.follow(chain, &mut journey) {
                return Fate::of(outcome);
            }
        }
        Fate::of(Outcome::Pass)
    }

    /// Rule `masquerading`: `ip saddr . ip daddr . meta l4proto . th dport @hairpin-connections`.
    fn is_hairpin(&self, packet: &Packet, target: SocketAddr) -> bool {
        let key = format!(
            "{} . {} . {} . {}",
            packet.source,
            target.ip(),
            packet.protocol.as_str().to_lowercase(),
            target.port()
        );
        self.sets["hairpin-connections"].contains(&key)
    }

    fn follow(&self, chain: &str, journey: &mut Journey<'_>) -> End {
        let rules = self
            .chains
            .get(chain)
            .unwrap_or_else(|| panic!("no chain {chain}"));
        for rule in rules {
            match self.rule(rule, journey) {
                End::Return => {}
                end => return end,
            }
        }
        End::Return
    }

    fn rule(&self, rule: &str, journey: &mut Journey<'_>) -> End {
        let mut rest = rule;
        loop {
            rest = rest.trim_start();
            if rest.is_empty() || rest.starts_with("comment ") || rest.starts_with("update ") {
                return End::Return;
            }
            if let Some((map, key)) = looked_up(rest, journey) {
                let verdict = self.maps[map].get(&key);
                return verdict.map_or(End::Return, |verdict| self.verdict(verdict, journey));
            }
            if let Some(next) = rest.strip_prefix("meta mark set meta mark | 0x00004000") {
                journey.mark = true;
                rest = next;
            } else if let Some(next) = rest.strip_prefix("fib saddr type local") {
                if !(journey.is_own)(journey.packet.source) {
                    return End::Return;
                }
                rest = next;
            } else if let Some(next) = rest.strip_prefix("meta l4proto ") {
                let (wanted, next) = word(next);
                if wanted != journey.protocol() {
                    return End::Return;
                }
                rest = next;
            } else if let Some(next) = address_match(rest) {
                let (matches, next) = self.matches(next, journey);
                if !matches {
                    return End::Return;
                }
                rest = next;
            } else if let Some(next) = rest.strip_prefix("numgen random mod ") {
                return self.random(next, journey);
            } else if let Some(next) = rest.strip_prefix("dnat ") {
                return End::Dnat(targets(next));
            } else {
                return self.verdict(rest, journey);
            }
        }
    }

    /// `saddr|daddr [!=] CIDR|@SET`, and what comes after it.
    fn matches<'r>(&self, rest: &'r str, journey: &Journey<'_>) -> (bool, &'r str) {
        let (field, rest) = word(rest);
        let address = match field {
            "saddr" => journey.packet.source,
            "daddr" => journey.packet.destination.ip(),
            other => panic!("no field {other}"),
        };
        let (negated, rest) = match rest.strip_prefix("!= ") {
            Some(rest) => (true, rest),
            None => (false, rest),
        };
        let (operand, rest) = word(rest);
        let within = match operand.strip_prefix('@') {
            Some(set) => self.sets[set].contains(&address.to_string()),
            None => operand.parse::<IpNet>().unwrap().contains(&address),
        };
        (within != negated, rest)
    }

    /// `N vmap { 0 : goto CHAIN, … }`: any of them.
    fn random(&self, rest: &str, journey: &mut Journey<'_>) -> End {
        let choices = rest.split_once("vmap {").unwrap().1;
        let mut targets = Vec::new();
        for choice in choices.trim_end_matches('}').split(',') {
            let (_, verdict) = choice.trim().split_once(" : ").unwrap();
            let End::Dnat(more) = self.verdict(verdict, journey) else {
                panic!("no endpoint behind {verdict}")
            };
            targets.extend(more);
        }
        End::Dnat(targets)
    }

    fn verdict(&self, text: &str, journey: &mut Journey<'_>) -> End {
        let (what, rest) = word(text.trim());
        match what {
            "drop" => End::Stop(Outcome::Drop),
            "reject" => End::Stop(Outcome::Reject),
            "goto" | "jump" => self.follow(word(rest).0, journey),
            other => panic!("cannot understand {other:?} of {text:?}"),
        }
    }
}

impl Journey<'_> {
    fn protocol(&self) -> String {
        self.packet.protocol.as_str().to_lowercase()
    }
}

/// `… vmap @MAP`: the map, and the packet's key in it.
fn looked_up<'r>(rest: &'r str, journey: &Journey<'_>) -> Option<(&'r str, String)> {
    let to = journey.packet.destination;
    let port = format!("{} . {}", journey.protocol(), to.port());
    if let Some(map) = rest.strip_prefix("meta l4proto . th dport vmap @") {
        return Some((map, port));
    }
    let map = address_match(rest)?.strip_prefix("daddr . meta l4proto . th dport vmap @")?;
    Some((map, format!("{} . {port}", to.ip())))
}

/// The first word, and the rest.
fn word(text: &str) -> (&str, &str) {
    text.split_once(' ').unwrap_or((text, ""))
}

/// What follows `ip ` or `ip6 `.
fn address_match(rest: &str) -> Option<&str> {
    rest.strip_prefix("ip6 ").or(rest.strip_prefix("ip "))
}

/// `to IP:PORT`, or `ip to numgen random mod N map { 0 : IP . PORT, … }`.
fn targets(rest: &str) -> Vec<SocketAddr> {
    let Some((_, choices)) = rest.split_once(" map {") else {
        return vec![rest.trim_start_matches("to ").parse().unwrap()];
    };
    let target = |choice: &str| {
        let (_, target) = choice.trim().split_once(" : ").unwrap();
        let (address, port) = target.trim().split_once(" . ").unwrap();
        SocketAddr::new(address.parse().unwrap(), port.parse().unwrap())
    };
    let choices = choices.trim_end_matches('}').split(',');
    choices.map(target).collect()
}
