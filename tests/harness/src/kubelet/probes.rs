//! Probes, as kubelet makes them: HTTP requests to the node.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::{
    api::core::v1::{Container, Probe},
    apimachinery::pkg::util::intstr::IntOrString,
};

use crate::{netns::NetNs, world::NODE_ADDRESSES};

/// What a probe asks.
#[derive(Debug, Clone)]
pub struct Question {
    to: SocketAddr,
    path: String,
    patience: Duration,
    /// How long failures are put up with.
    pub budget: Duration,
}

impl Question {
    /// That of `probe`, which is one of `container`.
    pub fn of(probe: &Probe, container: &Container) -> Result<Self> {
        let get = probe.http_get.as_ref();
        let get = get.context("only probes by HTTP are supported here")?;
        let port = match &get.port {
            IntOrString::Int(port) => *port,
            IntOrString::String(name) => {
                let mut ports = container.ports.iter().flatten();
                let port = ports.find(|port| port.name.as_ref() == Some(name));
                port.with_context(|| format!("the container has no port {name}"))?
                    .container_port
            }
        };
        let address = match &get.host {
            Some(host) => host.parse().with_context(|| format!("the host {host}"))?,
            None => NODE_ADDRESSES[0],
        };
        if get.scheme.as_deref().is_some_and(|scheme| scheme != "HTTP") {
            bail!("only HTTP is supported here");
        }
        let seconds = |value: Option<i32>, usual: i32| -> Result<Duration> {
            Ok(Duration::from_secs(value.unwrap_or(usual).try_into()?))
        };
        let failures = u32::try_from(probe.failure_threshold.unwrap_or(3))?;
        Ok(Self {
            to: (address, u16::try_from(port)?).into(),
            path: get.path.clone().unwrap_or_else(|| "/".to_owned()),
            patience: seconds(probe.timeout_seconds, 1)?,
            budget: seconds(probe.initial_delay_seconds, 0)?
                + failures * seconds(probe.period_seconds, 10)?,
        })
    }

    /// Asks once; what is wrong, unless the answer is a good one.
    pub fn ask(&self, netns: &NetNs) -> Result<(), String> {
        let asked = netns.run(|| self.answer());
        let answer = asked
            .map_err(|error| format!("{error:#}"))?
            .map_err(|error| format!("{}{}: {error:#}", self.to, self.path))?;
        let status: Option<u16> = answer.get(9..12).and_then(|code| code.parse().ok());
        match status {
            Some(200..400) => Ok(()),
            _ => Err(format!("{}{}: {answer}", self.to, self.path)),
        }
    }

    fn answer(&self) -> Result<String> {
        let mut stream = TcpStream::connect_timeout(&self.to, self.patience)?;
        stream.set_read_timeout(Some(self.patience))?;
        let (path, host) = (&self.path, self.to);
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }
}
