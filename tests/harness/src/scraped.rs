//! What an agent says at `/metrics`, on its default address.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use anyhow::{Context as _, Result};

use crate::world::Host;

/// Where kube-proxy has its metrics, too.
const METRICS: &str = "127.0.0.1:10249";
const LIMIT: Duration = Duration::from_secs(10);

/// The answer of the agent on `node`, headers included.
pub fn metrics(node: &Host) -> Result<String> {
    let ask = || {
        let mut stream = TcpStream::connect(METRICS)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = node.netns().run(ask)?;
    answer.with_context(|| format!("cannot read http://{METRICS}/metrics"))
}

/// The value of a sample in that, by its name and labels.
pub fn sample(metrics: &str, name: &str) -> Option<f64> {
    let mut lines = metrics.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    value.trim().parse().ok()
}
