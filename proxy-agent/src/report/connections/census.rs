//! The numbers: flows by state and by Service, the room that they take, and packets that were not
//! translated.

use std::{collections::BTreeMap, fmt::Write as _};

use proxy_backend::connections::{Census, Room, Stage};
use serde::Serialize;

use super::{
    super::{Form, explain::service_port, json, table},
    or_dash,
};

/// How many flows there are of which kind, and what they take.
pub fn census(census: &Census, form: Form) -> String {
    let counted = Counted::of(census);
    match form {
        Form::Json => json::pretty(&counted),
        Form::Text => counted.to_text(),
    }
}

#[derive(Serialize)]
struct Counted {
    flows: usize,
    unanswered: usize,
    beneath: u64,
    track: Taken,
    opening: Taken,
    states: Vec<OfState>,
    services: Vec<OfService>,
    packets: Option<Vec<Passed>>,
}

#[derive(Serialize)]
struct Taken {
    used: u64,
    limit: u64,
}

#[derive(Serialize)]
struct OfState {
    state: &'static str,
    flows: usize,
}

#[derive(Serialize)]
struct OfService {
    service: Option<String>,
    flows: usize,
}

#[derive(Serialize)]
struct Passed {
    device: String,
    reason: &'static str,
    packets: u64,
}

impl Counted {
    fn of(census: &Census) -> Self {
        let in_stage = |stage| {
            let flows = census.flows.iter();
            flows.filter(|flow| flow.stage == stage).count()
        };
        // Both families of a Service port have one name.
        let mut services = BTreeMap::<_, usize>::new();
        for flow in &census.flows {
            let service = flow.service.as_ref().map(service_port);
            *services.entry(service).or_default() += 1;
        }
        let services = services.into_iter();
        let packets = census.packets.as_ref().map(|packets| {
            let packets = packets.iter();
            let passed = packets.map(|((device, reason), packets)| Passed {
                device: device.clone(),
                reason,
                packets: *packets,
            });
            passed.collect()
        });
        let states = Stage::ALL.map(|stage| OfState {
            state: stage.as_str(),
            flows: in_stage(stage),
        });
        Self {
            flows: census.flows.len(),
            unanswered: in_stage(Stage::Opening),
            beneath: census.beneath,
            track: census.kept.into(),
            opening: census.passing.into(),
            states: states.into(),
            services: services
                .map(|(service, flows)| OfService { service, flows })
                .collect(),
            packets,
        }
    }

    fn to_text(&self) -> String {
        let states = self.states.iter();
        let states = states.map(|one| [one.state.to_owned(), one.flows.to_string()]);
        let mut text = format!(
            "{} connections, {} of them unanswered\n\
             kept until they end: {} of {} (TRACK)\n\
             giving way where there is no room: {} of {} entries (OPENING), {} of them for \
             connections left to the layer beneath\n",
            self.flows,
            self.unanswered,
            self.track.used,
            self.track.limit,
            self.opening.used,
            self.opening.limit,
            self.beneath
        );
        add(&mut text, &table::of(&["STATE", "CONNECTIONS"], states));
        if !self.services.is_empty() {
            let services = self.services.iter();
            let services =
                services.map(|one| [or_dash(one.service.clone()), one.flows.to_string()]);
            add(&mut text, &table::of(&["SERVICE", "CONNECTIONS"], services));
        }
        match &self.packets {
            None => add(
                &mut text,
                "packets that were not translated: not known (map REASONS)\n",
            ),
            Some(packets) if packets.is_empty() => {}
            Some(packets) => {
                let rows = packets.iter().map(|one| {
                    let packets = one.packets.to_string();
                    [one.device.clone(), one.reason.to_owned(), packets]
                });
                let header = ["DEVICE", "REASON", "PACKETS NOT TRANSLATED"];
                add(&mut text, &table::of(&header, rows));
            }
        }
        text
    }
}

/// Another part, after an empty line.
fn add(text: &mut String, part: &str) {
    write!(text, "\n{part}").expect("writing to a string cannot fail");
}

impl From<Room> for Taken {
    fn from(Room { used, limit }: Room) -> Self {
        Self { used, limit }
    }
}
