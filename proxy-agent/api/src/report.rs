//! What a backend reports to its brain.

use std::{fmt, str::FromStr, sync::Arc};

use proxy_model::{Capability, ServiceFailure};
use thiserror::Error;

use crate::{Token, convert, wire};

/// The name of a client in the brain's output and metrics: 1 to 63 characters out of a-z, A-Z, 0-9,
/// `-`, `_` and `.`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientName(Arc<str>);

/// Characters of a [`ClientName`].
pub(crate) const LONGEST_NAME: usize = 63;

/// A text is not a [`ClientName`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{0:?} is not a valid client name: use 1 to 63 characters out of a-z, A-Z, 0-9, '-', '_' and \
     '.'"
)]
pub struct NameError(String);

impl ClientName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ClientName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if (1..=LONGEST_NAME).contains(&text.len()) && text.bytes().all(allowed) {
            return Ok(Self(text.into()));
        }
        // It may be of any length, and the error goes into logs.
        Err(NameError(text.chars().take(LONGEST_NAME + 1).collect()))
    }
}

impl fmt::Display for ClientName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// What a backend has made of the state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// The last state that is in force, apart from `failures`; `None` if none is yet.
    pub applied: Option<Token>,
    /// Service ports that are not as it wants them.
    pub failures: Vec<ServiceFailure>,
    /// Why a later state is not in force, in a sentence.
    pub error: Option<String>,
    /// What the backend cannot do, if that now differs from the client's options.
    pub lacks: Option<Vec<Capability>>,
}

/// Who calls, as a message.
pub(crate) fn client(name: &ClientName, lacks: &[Capability]) -> wire::Client {
    wire::Client {
        name: name.to_string(),
        lacks: named(lacks),
    }
}

fn named(lacks: &[Capability]) -> Vec<i32> {
    let all = lacks.iter();
    all.map(|one| convert::names::capability(*one).into())
        .collect()
}

/// Failures that are told one by one: a full map may mean every Service port, and a report that is too
/// large to be taken tells nothing at all.
pub(crate) const MOST_FAILURES: usize = 1_000;

/// Characters of a reason that are told.
pub(crate) const LONGEST_REASON: usize = 1_000;

impl Report {
    pub(crate) fn encode(&self, mut client: wire::Client) -> wire::ReportRequest {
        if let Some(lacks) = &self.lacks {
            client.lacks = named(lacks);
        }
        let failure = |one: &ServiceFailure| wire::Failure {
            key: Some(convert::names::service_port_key(&one.key)),
            reason: shortened(&one.reason),
        };
        let told = self.failures.iter().take(MOST_FAILURES);
        let more = self.failures.len().saturating_sub(MOST_FAILURES);
        wire::ReportRequest {
            client: Some(client),
            applied: self.applied.map(Into::into),
            failures: told.map(failure).collect(),
            error: self.error.as_deref().map(shortened).unwrap_or_default(),
            more_failures: u32::try_from(more).unwrap_or(u32::MAX),
        }
    }
}

/// The beginning of a reason, if it is long.
pub(crate) fn shortened(reason: &str) -> String {
    reason.chars().take(LONGEST_REASON).collect()
}
