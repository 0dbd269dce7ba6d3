//! The list: one line for each flow, in both forms.

use std::{iter, net::SocketAddr, time::Duration};

use proxy_backend::connections::Flow;
use serde::Serialize;

use super::{
    super::{Form, explain::service_port},
    or_dash,
};

/// Flows in one piece of output: a hundred thousand as one text would take more memory than all else.
const PIECE: usize = 1024;

const HEADER: [&str; 8] = [
    "PROTOCOL", "CLIENT", "FRONTEND", "SOURCE", "ENDPOINT", "STATE", "IDLE", "SERVICE",
];

/// The flows, one each line, in pieces that belong one behind the other.
pub fn list(flows: &[Flow], form: Form) -> Box<dyn Iterator<Item = String> + '_> {
    match form {
        Form::Json => Box::new(as_json(flows)),
        Form::Text if flows.is_empty() => Box::new(iter::once("no connections\n".to_owned())),
        Form::Text => Box::new(as_text(flows)),
    }
}

fn as_text(flows: &[Flow]) -> impl Iterator<Item = String> + '_ {
    let mut widths = HEADER.map(str::len);
    for flow in flows {
        for (width, cell) in widths.iter_mut().zip(row(flow)) {
            *width = cell.len().max(*width);
        }
    }
    let line = move |mut cells: [String; 8]| {
        for (cell, width) in cells.iter_mut().zip(widths) {
            *cell = format!("{cell:width$}  ");
        }
        [cells.concat().trim_end(), "\n"].concat()
    };
    let head = line(HEADER.map(str::to_owned));
    let pieces = flows.chunks(PIECE);
    let pieces = pieces.map(move |piece| piece.iter().map(|flow| line(row(flow))).collect());
    iter::once(head).chain(pieces)
}

fn as_json(flows: &[Flow]) -> impl Iterator<Item = String> + '_ {
    let pieces = flows.chunks(PIECE).enumerate().map(|(piece, flows)| {
        let mut text = String::new();
        for (at, flow) in flows.iter().enumerate() {
            text += if piece + at == 0 { "\n" } else { ",\n" };
            let json = serde_json::to_string(&Listed::of(flow));
            text += &json.expect("strings and numbers always serialise");
        }
        text
    });
    let [begin, end] = ["{\"flows\":[", "]}\n"].map(|part| iter::once(part.to_owned()));
    begin.chain(pieces).chain(end)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Listed<'a> {
    protocol: &'a str,
    client: SocketAddr,
    frontend: SocketAddr,
    source: SocketAddr,
    endpoint: SocketAddr,
    state: &'a str,
    idle_seconds: u64,
    service: Option<String>,
}

impl Listed<'_> {
    fn of(flow: &Flow) -> Self {
        Self {
            protocol: flow.protocol.as_str(),
            client: flow.client,
            frontend: flow.frontend,
            source: flow.source.unwrap_or(flow.client),
            endpoint: flow.endpoint,
            state: flow.stage.as_str(),
            idle_seconds: flow.idle.as_secs(),
            service: flow.service.as_ref().map(service_port),
        }
    }
}

fn row(flow: &Flow) -> [String; 8] {
    let listed = Listed::of(flow);
    [
        listed.protocol.to_owned(),
        listed.client.to_string(),
        listed.frontend.to_string(),
        or_dash(flow.source.map(|source| source.to_string())),
        listed.endpoint.to_string(),
        listed.state.to_owned(),
        short(flow.idle),
        or_dash(listed.service),
    ]
}

/// `59s`, `90m`, `26h`: at least two digits where there are as many.
fn short(time: Duration) -> String {
    match time.as_secs() {
        seconds @ ..120 => format!("{seconds}s"),
        seconds @ ..7200 => format!("{}m", seconds / 60),
        seconds => format!("{}h", seconds / 3600),
    }
}
