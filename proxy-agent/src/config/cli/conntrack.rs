//! The subcommands of `conntrack`.

use std::net::IpAddr;

use clap::{ArgGroup, Args, Subcommand};
use proxy_backend::connections::Which;
use proxy_model::{ObjectName, ServiceName};

use super::{ANSWER, PinArgs};
use crate::report::Form;

const CONNECTIONS: &str = "Connections";

/// Arguments of `conntrack`.
#[derive(Debug, Args)]
pub struct ConntrackArgs {
    /// What to do with them.
    #[command(subcommand)]
    pub command: ConntrackCommand,
}

/// What to do with connections from outside.
#[derive(Debug, Subcommand)]
pub enum ConntrackCommand {
    /// List the connections from outside that programs on devices translate. Needs root, and no
    /// running agent
    List(ListArgs),
    /// Count these connections, the room that they take, and packets that were not translated, by
    /// reason
    Stats(StatsArgs),
    /// End some of these connections, or all.
    ///
    /// From then on, nothing is translated for them. TCP: packets of the client go to the layer beneath,
    /// which does not know the connection, and packets of the endpoint leave with its own address; the
    /// connection ends by a reset from either side, or when an application tires of waiting. UDP: the
    /// next datagram of the client begins a new flow, which may lead to another endpoint; session
    /// affinity is kept. Connections that the layer beneath serves are not touched
    Flush(FlushArgs),
}

/// Which connections are meant.
#[derive(Debug, Args)]
pub struct WhichArgs {
    /// Only those for this Service, whichever its port
    #[arg(help_heading = CONNECTIONS, long, value_name = "NS/NAME", value_parser = service)]
    pub service: Option<ServiceName>,

    /// Only those of this client
    #[arg(help_heading = CONNECTIONS, long, value_name = "IP")]
    pub client: Option<IpAddr>,
}

impl WhichArgs {
    /// What is meant.
    pub fn which(&self) -> Which {
        Which {
            service: self.service.clone(),
            // Programs know no other form of an IPv4 address.
            client: self.client.map(|client| client.to_canonical()),
        }
    }
}

/// Arguments of `conntrack list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Which ones.
    #[command(flatten)]
    pub which: WhichArgs,

    /// Pins.
    #[command(flatten)]
    pub pins: PinArgs,

    /// Format of the output; the JSON is described in docs/conntrack-json.md
    #[arg(help_heading = ANSWER, short, long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub output: Form,
}

/// Arguments of `conntrack stats`.
#[derive(Debug, Args)]
pub struct StatsArgs {
    /// Pins.
    #[command(flatten)]
    pub pins: PinArgs,

    /// Format of the output; the JSON is described in docs/conntrack-json.md
    #[arg(help_heading = ANSWER, short, long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub output: Form,
}

/// Arguments of `conntrack flush`.
#[derive(Debug, Args)]
// To end everything takes more than to say nothing.
#[command(group = ArgGroup::new("meant").args(["service", "client", "all"]).required(true).multiple(true))]
pub struct FlushArgs {
    /// Which ones.
    #[command(flatten)]
    pub which: WhichArgs,

    /// All of them
    #[arg(help_heading = CONNECTIONS, long, conflicts_with_all = ["service", "client"])]
    pub all: bool,

    /// Pins.
    #[command(flatten)]
    pub pins: PinArgs,
}

fn service(text: &str) -> Result<ServiceName, String> {
    match text.split_once('/') {
        Some((namespace, name))
            if !namespace.is_empty() && !name.is_empty() && !name.contains(['/', ':']) =>
        {
            Ok(ObjectName::new(namespace, name))
        }
        _ => Err("must be NAMESPACE/NAME, such as shop/web".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::{
        super::{Cli, Command},
        *,
    };

    fn read(line: &str) -> Result<ConntrackCommand, String> {
        let line = format!("proxy-agent conntrack {line}");
        match Cli::try_read(line.split(' ').map(OsString::from)) {
            Ok(cli) => match cli.command {
                Some(Command::Conntrack(args)) => Ok(args.command),
                other => panic!("{other:?}"),
            },
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn flows_are_chosen_by_service_and_client() {
        let Ok(ConntrackCommand::List(list)) =
            read("list --service shop/web --client ::ffff:192.0.2.7")
        else {
            panic!("a list was asked for");
        };
        let expected = Which {
            service: Some(ObjectName::new("shop", "web")),
            client: Some([192, 0, 2, 7].into()),
        };
        assert_eq!(list.which.which(), expected);
        let Ok(ConntrackCommand::Flush(flush)) = read("flush --all") else {
            panic!("an end was asked for");
        };
        assert_eq!(flush.which.which(), Which::default());
        assert!(read("flush --service shop/web --client fd00::7").is_ok());
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (line, said) in [
            ("flush", "--all"),
            ("flush --all --client 192.0.2.7", "cannot be used with"),
            ("list --service web", "must be NAMESPACE/NAME"),
            ("list --service /web", "must be NAMESPACE/NAME"),
            ("list --service shop/web:http", "must be NAMESPACE/NAME"),
            ("list --client 192.0.2", "invalid IP address"),
            ("list --output yaml", "possible values: text, json"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(said), "{line}: {error}");
        }
    }
}
