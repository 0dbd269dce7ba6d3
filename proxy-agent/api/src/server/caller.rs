//! Who calls: what a connection proves about the client at its other end, and under which name that
//! client is known. A Unix socket proves that its rights let it in, a certificate says its names,
//! and on `tcp://` nothing is proven but by a token.

use std::sync::Arc;

use tokio::task::spawn_blocking;
use tonic::{Request, Status, metadata::MetadataMap};

use super::{doors::Stay, peer::Peer};
use crate::{ClientName, token::TokenFile};

/// What there is to know of whoever comes in at a listener.
#[derive(Debug, Clone)]
pub enum Trust {
    /// Whoever the rights of the socket let in.
    Socket,
    /// Whoever has a certificate with these names.
    Certificate(Arc<[ClientName]>),
    /// Every process of this host; who is meant to be there shows the token.
    Token(Arc<TokenFile>),
    /// Every process of this host.
    Nobody,
}

/// A connection, as calls on it see it.
#[derive(Debug, Clone)]
pub struct Caller {
    pub peer: Peer,
    trust: Trust,
    stay: Arc<Stay>,
}

/// Whose call it is.
#[derive(Debug, PartialEq, Eq)]
pub struct Identity {
    pub name: ClientName,
    /// Whether that is proven; otherwise it only hears the state.
    pub known: bool,
}

impl Caller {
    pub fn new(peer: Peer, trust: Trust, stay: Arc<Stay>) -> Self {
        Self { peer, trust, stay }
    }

    /// Who makes `request`.
    pub fn of<T>(request: &Request<T>) -> Result<Self, Status> {
        let caller = request.extensions().get::<Self>();
        caller
            .cloned()
            .ok_or_else(|| Status::internal("nothing is known of this connection"))
    }

    /// The connection is of use. It keeps its place if the client is `known`, or nobody can be.
    pub fn is_served(&self, known: bool) {
        let keeps = known || !matches!(self.trust, Trust::Token(_));
        self.stay.is_used(keeps);
    }

    /// Under which name the client is known that calls itself `said`.
    pub async fn identify(
        &self,
        said: ClientName,
        metadata: &MetadataMap,
    ) -> Result<Identity, Status> {
        match &self.trust {
            Trust::Socket => Ok(Identity {
                name: said,
                known: true,
            }),
            Trust::Nobody => Ok(Identity {
                name: said,
                known: false,
            }),
            Trust::Certificate(names) => {
                let name = named_by(names, said)?;
                Ok(Identity { name, known: true })
            }
            Trust::Token(file) => {
                let shown = metadata.get("authorization");
                // Who shows another one is told the state, as is who shows none.
                let known = match shown {
                    None => false,
                    Some(shown) => shows(file, shown.as_bytes()).await,
                };
                Ok(Identity { name: said, known })
            }
        }
    }

    /// Why a client that is not known is not heard.
    pub fn unheard(&self, metadata: &MetadataMap) -> Status {
        Status::permission_denied(match self.trust {
            Trust::Token(_) if metadata.contains_key("authorization") => {
                "this is not the token of this brain: compare --token-file or \
                 --target-token-file with its --listen-token-file"
            }
            Trust::Token(_) => {
                "a report on tcp:// needs the token: send it as metadata, `authorization: Bearer \
                 TOKEN` (--token-file, --target-token-file)"
            }
            _ => {
                "this brain accepts no reports on tcp://, because every process of the host could \
                 make them. Use a unix:// socket, or give the brain a --listen-token-file"
            }
        })
    }
}

/// The name that a client is known by whose certificate has `names`.
fn named_by(names: &[ClientName], said: ClientName) -> Result<ClientName, Status> {
    if names.contains(&said) {
        return Ok(said);
    }
    names.first().cloned().ok_or_else(|| {
        Status::permission_denied(
            "this certificate names no client: it needs a DNS name or a common name",
        )
    })
}

async fn shows(file: &Arc<TokenFile>, shown: &[u8]) -> bool {
    let token = std::str::from_utf8(shown).ok();
    let Some(token) = token.and_then(|shown| shown.strip_prefix("Bearer ")) else {
        return false;
    };
    let (file, token) = (Arc::clone(file), token.to_owned());
    // A file system may be slow; whoever else is served is not to wait.
    spawn_blocking(move || file.is(&token))
        .await
        .unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> ClientName {
        text.parse().unwrap()
    }

    #[test]
    fn a_certificate_says_who_its_client_is() {
        let names = [name("node-a"), name("ebpf")];
        for (said, known_as) in [("ebpf", "ebpf"), ("node-a", "node-a"), ("node-b", "node-a")] {
            assert_eq!(named_by(&names, name(said)).unwrap(), name(known_as));
        }
        assert!(named_by(&[], name("node-a")).is_err());
    }
}
