//! What the running agent answers about a packet (`proxy-agent explain`), held against what became of
//! one.

use std::net::SocketAddr;

use proxy_model::Protocol;
use proxy_tests::{Agent, agent::LIMIT, process::Process};
use serde_json::Value;

use super::{
    clients::{Became, Client},
    rig::{ABOVE, BENEATH},
    stage::NODE,
};

/// An answer.
pub struct Explained(Value);

/// Asks the agent what becomes of what `client` sends.
pub fn explained(
    agent: &Agent<'_>,
    client: Client,
    to: SocketAddr,
    protocol: Protocol,
) -> Explained {
    let mut command = agent.command("explain").unwrap();
    command.args(["-o", "json", "--from", &client.address().to_string()]);
    command.args(["--to", &format!("{to}/{protocol}")]);
    match client {
        Client::Pod | Client::Node => command.args(["--path", "socket"]),
        Client::UnseenOfNode => command.args(["--path", "packet"]),
        Client::Machine => command.args(["--in-interface", "tap0"]),
        Client::Unseen | Client::Outside | Client::Raw => command.args(["--in-interface", "br0"]),
    };
    let done = Process::run("proxy-agent", command, LIMIT).unwrap();
    assert_eq!(done.code, Some(0), "{done:?}");
    Explained(serde_json::from_str(&done.stdout).unwrap())
}

impl Explained {
    /// Whether the answer is what became of it: the layer, and whom the endpoint sees; else what is
    /// wrong.
    pub fn agrees(&self, client: Client, became: Became) -> Result<(), String> {
        let of_process = matches!(client, Client::Pod | Client::Node);
        let (outcome, layer) = match became {
            Became::Led { .. } | Became::LedThenTranslated { .. } => ("forward", Some(ABOVE)),
            Became::Translated { .. } => ("forward", Some(BENEATH)),
            // Who tells a process so is nothing that it sees.
            Became::Refused("EHOSTUNREACH") => ("drop", Some(ABOVE)),
            Became::Refused(_) => ("reject", (!of_process).then_some(BENEATH)),
            Became::Silence => ("drop", Some(BENEATH)),
        };
        let wrong = |what: &str| Err(format!("{what}: {}, but {became:?}", self.0));
        if self.0["outcome"] != outcome {
            return wrong("the outcome");
        }
        if layer.is_some_and(|layer| self.0["layer"] != layer) {
            return wrong("the layer");
        }
        if let Became::Led { sees }
        | Became::Translated { sees }
        | Became::LedThenTranslated { sees } = became
        {
            // Of the node itself, either is so.
            let masquerade = sees == NODE;
            let endpoints = self.0["endpoints"].as_array();
            let one = endpoints.filter(|all| all.len() == 1);
            let told = one.map(|all| &all[0]["masquerade"]);
            if client.address() != NODE && told != Some(&masquerade.into()) {
                return wrong("whom the endpoint sees");
            }
        }
        Ok(())
    }
}
