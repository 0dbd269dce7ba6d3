//! Connections to an API server that do not outlive it unnoticed. A partition, or a host that was
//! suspended, tells nobody: what is open is probed, and what is sent has to be acknowledged.

use std::time::Duration;

use ::kube::{Config, client::ConfigExt};
use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::{
        self,
        connect::{Connect, HttpConnector},
    },
    rt::TokioExecutor,
};

use ::kube::client::Body;

/// Before a connection on which nothing comes is probed.
const QUIET: Duration = Duration::from_secs(5);
/// Between probes.
const PROBES: Duration = Duration::from_secs(2);
/// Probes without an answer after which it is lost, where the kernel goes by their number.
const UNANSWERED: u32 = 3;
/// Without an answer to probes, or to what was sent, for so long, it is lost. Together with the
/// pause between probes: after eleven seconds. Less would take a network that finds itself another
/// way for one that is gone.
const LOST: Duration = Duration::from_secs(10);

/// Connects to what `config` describes. To resolve the name, to connect and to agree on TLS may take
/// `limit`, together.
pub(super) fn client(
    config: &Config,
    limit: Duration,
) -> Result<legacy::Client<impl Connect + Clone + use<>, Body>, ::kube::Error> {
    let secure = trusting(config).rustls_https_connector_with_connector(tcp(limit))?;
    let mut connector = TimeoutConnector::new(secure);
    connector.set_connect_timeout(Some(limit));
    Ok(legacy::Client::builder(TokioExecutor::new())
        // Watches last for minutes. A connection that was left unused that long may be dead
        // without anybody having been told, and a new one costs little.
        .pool_max_idle_per_host(0)
        .build(connector))
}

/// The same, with no certificates of the system's where none will be looked at: a system without any,
/// such as an image with nothing but the agent, is an error otherwise.
fn trusting(config: &Config) -> Config {
    let mut config = config.clone();
    let verifies = config.cluster_url.scheme_str() == Some("https") && !config.accept_invalid_certs;
    if config.root_cert.is_none() && !verifies {
        config.root_cert = Some(Vec::new());
    }
    config
}

fn tcp(limit: Duration) -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_connect_timeout(Some(limit));
    connector.set_keepalive(Some(QUIET));
    connector.set_keepalive_interval(Some(PROBES));
    connector.set_keepalive_retries(Some(UNANSWERED));
    connector.set_tcp_user_timeout(Some(LOST));
    connector.set_nodelay(true);
    connector
}

#[cfg(test)]
mod tests {
    use nix::sys::socket::{getsockopt, sockopt};
    use tokio::net::TcpListener;
    use tower::ServiceExt as _;

    use super::*;

    #[test]
    fn certificates_of_the_system_are_for_servers_that_are_verified_and_name_no_other() {
        let config = |url: &str, insecure, roots| {
            let mut config = Config::new(url.parse().unwrap());
            config.accept_invalid_certs = insecure;
            config.root_cert = roots;
            config
        };
        let own = || Some(vec![vec![1]]);
        for (config, roots) in [
            (config("https://10.0.0.1", false, None), None),
            (config("https://10.0.0.1", true, None), Some(Vec::new())),
            (config("http://10.0.0.1", false, None), Some(Vec::new())),
            (config("https://10.0.0.1", false, own()), own()),
        ] {
            assert_eq!(trusting(&config).root_cert, roots, "{config:?}");
        }
    }

    #[tokio::test]
    async fn the_kernel_probes_what_is_quiet_and_gives_up_what_is_not_acknowledged() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let stream = tcp(QUIET).oneshot(url.parse().unwrap()).await.unwrap();
        let stream = stream.into_inner();
        assert!(getsockopt(&stream, sockopt::KeepAlive).unwrap());
        let idle = getsockopt(&stream, sockopt::TcpKeepIdle).unwrap();
        let interval = getsockopt(&stream, sockopt::TcpKeepInterval).unwrap();
        let count = getsockopt(&stream, sockopt::TcpKeepCount).unwrap();
        let lost = getsockopt(&stream, sockopt::TcpUserTimeout).unwrap();
        assert_eq!((idle, interval, count, lost), (5, 2, 3, 10_000));
        // A partition is noticed by then.
        let latest = lost / 1_000 + interval;
        assert!(latest < 15 && idle + interval * count < 15);
    }
}
