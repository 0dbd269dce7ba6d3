//! Where a brain is: what `--target` and `--listen` take.

use std::{fmt, net::IpAddr, path::PathBuf, str::FromStr};

use thiserror::Error;

/// Where a brain listens, and how it and its clients know each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// `unix:///run/x.sock`: whoever may open the socket.
    Unix(PathBuf),
    /// `tcp://127.0.0.1:4590`: every process of this host. Loopback only, because nothing is
    /// encrypted and nobody is asked who they are.
    Tcp(Host),
    /// `tls://brain.example:4590`: whoever has a certificate of the same authority, from anywhere.
    Tls(Host),
}

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// A name, or an IP address without brackets.
    pub name: String,
    /// 1 to 65535; 0 where one listens lets the system choose.
    pub port: u16,
}

/// The files of mutual TLS, all PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The own certificate, followed by those that lead to its authority.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Certificates of the authorities that the other side must have its certificate from.
    pub ca: PathBuf,
}

/// Why a text is no [`Target`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?}: {problem}")]
pub struct TargetError {
    text: String,
    problem: &'static str,
}

/// Some files of mutual TLS were given, and not all of them.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{prefix}tls-cert, {prefix}tls-key and {prefix}tls-ca belong together: give all three")]
pub struct TlsFlagsError {
    /// What the flags begin with.
    pub prefix: String,
}

impl TlsFiles {
    /// Those that flags named: certificate, key, authority, whose names begin with `prefix` (`--`,
    /// `--listen-`). `None` if none is given; one alone is of no use.
    pub fn of_flags(
        prefix: &str,
        files: [Option<PathBuf>; 3],
    ) -> Result<Option<Self>, TlsFlagsError> {
        match files {
            [None, None, None] => Ok(None),
            [Some(cert), Some(key), Some(ca)] => Ok(Some(Self { cert, key, ca })),
            _ => Err(TlsFlagsError {
                prefix: prefix.to_owned(),
            }),
        }
    }
}

impl Target {
    /// Whether [`TlsFiles`] are needed.
    pub const fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// The URI that the HTTP/2 library takes.
    pub(crate) fn uri(&self) -> String {
        match self {
            Self::Unix(path) => format!("unix://{}", path.display()),
            Self::Tcp(host) => format!("http://{host}"),
            Self::Tls(host) => format!("https://{host}"),
        }
    }
}

impl Host {
    fn is_loopback(&self) -> bool {
        self.name == "localhost"
            || (self.name.parse::<IpAddr>()).is_ok_and(|address| address.is_loopback())
    }

    fn parse(text: &str) -> Option<Self> {
        let (name, port) = text.rsplit_once(':')?;
        let name = match name.strip_prefix('[') {
            Some(rest) => {
                let v6 = rest.strip_suffix(']')?;
                v6.parse::<std::net::Ipv6Addr>().ok()?;
                v6
            }
            None => name,
        };
        let allowed = |c: char| c.is_ascii_alphanumeric() || ".:-_".contains(c);
        if name.is_empty() || !name.chars().all(allowed) {
            return None;
        }
        Some(Self {
            name: name.to_owned(),
            port: port.parse().ok()?,
        })
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let wrong = |problem| TargetError {
            text: text.to_owned(),
            problem,
        };
        let host = |rest| {
            let problem = "needs a host and a port, such as 127.0.0.1:4590 or [::1]:4590";
            Host::parse(rest).ok_or_else(|| wrong(problem))
        };
        if let Some(path) = text.strip_prefix("unix://") {
            if !path.starts_with('/') {
                return Err(wrong("needs an absolute path, such as unix:///run/x.sock"));
            }
            Ok(Self::Unix(path.into()))
        } else if let Some(rest) = text.strip_prefix("tcp://") {
            let host = host(rest)?;
            if !host.is_loopback() {
                let problem = "plain TCP is for loopback addresses only; use tls:// and \
                               certificates for another host";
                return Err(wrong(problem));
            }
            Ok(Self::Tcp(host))
        } else if let Some(rest) = text.strip_prefix("tls://") {
            Ok(Self::Tls(host(rest)?))
        } else {
            Err(wrong(
                "must begin with unix:// (a socket), tcp:// (loopback) or tls:// (certificates)",
            ))
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Tcp(host) => write!(f, "tcp://{host}"),
            Self::Tls(host) => write!(f, "tls://{host}"),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.contains(':') {
            write!(f, "[{}]:{}", self.name, self.port)
        } else {
            write!(f, "{}:{}", self.name, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_what_is_typed() {
        for text in [
            "unix:///run/x.sock",
            "tcp://127.0.0.1:4590",
            "tcp://[::1]:4590",
            "tcp://localhost:1",
            "tls://192.0.2.1:4590",
            "tls://[fd00::1]:4590",
            "tls://brain.example:65535",
        ] {
            let target: Target = text.parse().unwrap();
            assert_eq!(target.to_string(), text);
        }
    }

    #[test]
    fn what_is_no_target_is_told_with_what_to_do() {
        for (text, problem) in [
            ("/run/x.sock", "must begin with unix://"),
            ("http://127.0.0.1:1", "must begin with unix://"),
            ("unix://run/x.sock", "absolute path"),
            ("tcp://192.0.2.1:4590", "loopback addresses only"),
            ("tcp://brain.example:4590", "loopback addresses only"),
            ("tcp://127.0.0.1", "a host and a port"),
            ("tcp://127.0.0.1:65536", "a host and a port"),
            ("tcp://:1", "a host and a port"),
            ("tls://[fd00::1:1", "a host and a port"),
            ("tls://a b:1", "a host and a port"),
            ("tls://user@host:1", "a host and a port"),
        ] {
            let error = text.parse::<Target>().unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
            assert!(error.contains(text), "{error}");
        }
    }
}
