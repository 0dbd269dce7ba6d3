//! What can go wrong between a request and its last byte, and what that says about the server.

use std::time::Duration;

use serde::Deserialize;
use thiserror::Error;

use super::counters::Reason;
use crate::cluster::brief::brief;

/// Why a request or an answer came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) enum Failure {
    /// No connection, or it broke before there was an answer.
    #[error("no connection: {0}")]
    Unreachable(String),
    /// No answer in time.
    #[error("no answer for {0:?}")]
    Unanswered(Duration),
    /// The answer broke off.
    #[error("the answer broke off: {0}")]
    BrokeOff(String),
    /// No object and no bookmark came for too long, whatever else did.
    #[error("nothing new came for {0:?}, not even a bookmark")]
    Silent(Duration),
    /// 410, as an answer or within one.
    #[error("the requested version is too old: {0}")]
    Expired(String),
    /// Any other answer than a good one.
    #[error("the server answered {code}: {message}")]
    Refused {
        /// HTTP status.
        code: u16,
        /// What the server says.
        message: String,
        /// How long the server wants to be left alone.
        retry_after: Option<Duration>,
    },
    /// The answer makes no sense.
    #[error("the answer is invalid: {0}")]
    Garbled(String),
}

/// What a failure says about the server that it came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blame {
    /// The server is of no use: try another one.
    Server,
    /// It may be, if it goes on like that.
    Perhaps,
    /// It is not the server.
    None,
}

impl Failure {
    /// An answer with the HTTP status `code`. `body` is a `Status` object, or some text.
    pub(super) fn from_answer(code: u16, body: &[u8], retry_after: Option<Duration>) -> Self {
        match serde_json::from_slice::<Status>(body) {
            Ok(status) => status.into_failure(Some(code), retry_after),
            Err(_) => Status {
                message: Some(String::from_utf8_lossy(body).into_owned()),
                ..Status::default()
            }
            .into_failure(Some(code), retry_after),
        }
    }

    pub(super) fn reason(&self) -> Reason {
        match self {
            Self::Unreachable(_) | Self::Unanswered(_) => Reason::Unreachable,
            Self::BrokeOff(_) => Reason::BrokeOff,
            Self::Silent(_) => Reason::Silent,
            Self::Expired(_) => Reason::Expired,
            Self::Garbled(_) => Reason::Garbled,
            Self::Refused { code, .. } => match code {
                401 => Reason::Unauthorized,
                403 => Reason::Forbidden,
                429 => Reason::Throttled,
                500.. => Reason::Server,
                _ => Reason::Refused,
            },
        }
    }

    pub(super) fn blame(&self) -> Blame {
        match self.reason() {
            Reason::Unreachable | Reason::Silent => Blame::Server,
            Reason::BrokeOff
            | Reason::Unauthorized
            | Reason::Throttled
            | Reason::Server
            | Reason::Garbled => Blame::Perhaps,
            Reason::Expired | Reason::Forbidden | Reason::Refused => Blame::None,
        }
    }

    /// Whether the connection failed, rather than that the server said no.
    pub(super) fn is_connection(&self) -> bool {
        matches!(
            self.reason(),
            Reason::Unreachable | Reason::BrokeOff | Reason::Silent
        )
    }

    /// Whether what was told does not lead on from here, and everything must be listed again.
    pub(super) fn is_stale(&self) -> bool {
        match self {
            Self::Expired(_) | Self::Garbled(_) => true,
            // Of a cluster that was set back to an earlier state.
            Self::Refused {
                code: 504, message, ..
            } => message.contains("Too large resource version"),
            Self::Refused { code, .. } => matches!(code, 400 | 422),
            _ => false,
        }
    }

    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    pub(super) fn code(&self) -> Option<u16> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }
}

/// The API's `Status`, as an answer or as the object of an `ERROR` event.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Status {
    code: Option<u16>,
    message: Option<String>,
    reason: Option<String>,
    details: Option<Details>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Details {
    retry_after_seconds: Option<u64>,
}

impl Status {
    /// `code` and `retry_after` are what the head of the answer said.
    pub(super) fn into_failure(self, code: Option<u16>, retry_after: Option<Duration>) -> Failure {
        let code = code.or(self.code).unwrap_or_default();
        let reason = self.reason.unwrap_or_default();
        let message = brief(self.message.as_deref().unwrap_or(&reason));
        // Within a watch some servers send the reason alone.
        if code == 410 || matches!(reason.as_str(), "Expired" | "Gone") {
            return Failure::Expired(message);
        }
        let seconds = self.details.and_then(|details| details.retry_after_seconds);
        Failure::Refused {
            code,
            message,
            retry_after: retry_after.or(seconds
                .filter(|&seconds| seconds > 0)
                .map(Duration::from_secs)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_expired_version_is_told_by_code_or_reason() {
        let status = |status| serde_json::from_value::<Status>(status).unwrap();
        for status in [
            status(json!({"code": 410, "message": "too old", "details": null})),
            status(json!({"reason": "Expired"})),
            status(json!({"reason": "Gone", "code": null})),
        ] {
            let failure = status.into_failure(None, None);
            assert_eq!(failure.reason(), Reason::Expired, "{failure}");
        }
        let failure = Failure::from_answer(410, b"<html>", None);
        assert_eq!(failure, Failure::Expired("<html>".to_owned()));
    }

    #[test]
    fn what_a_server_says_is_cut_to_a_log_line() {
        let long = "x".repeat(1 << 20);
        for body in [json!({"message": long}).to_string(), long.clone()] {
            let failure = Failure::from_answer(500, body.as_bytes(), None);
            let text = failure.to_string();
            assert!(text.len() < 500 && text.contains("bytes"), "{text}");
        }
    }

    #[test]
    fn the_wait_that_a_server_asks_for_is_in_its_header_or_its_status() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let body = br#"{"code": 429, "details": {"retryAfterSeconds": 7}}"#;
        assert_eq!(
            Failure::from_answer(429, body, None).retry_after(),
            seconds(7)
        );
        let header = Failure::from_answer(429, body, seconds(3));
        assert_eq!(header.retry_after(), seconds(3));
        assert_eq!(Failure::from_answer(503, b"", None).retry_after(), None);
    }

    #[test]
    fn some_failures_call_for_a_list() {
        let refused = |code, message: &str| {
            let body = json!({"message": message}).to_string();
            Failure::from_answer(code, body.as_bytes(), None).is_stale()
        };
        assert!(refused(410, "") && refused(400, ""));
        assert!(refused(
            504,
            "Timeout: Too large resource version: 9, current: 5"
        ));
        assert!(!refused(504, "Timeout") && !refused(503, "") && !refused(401, ""));
        assert!(!Failure::BrokeOff(String::new()).is_stale());
    }

    #[test]
    fn only_failures_of_the_server_are_blamed_on_it() {
        let refused = |code| Failure::from_answer(code, b"{}", None).blame();
        assert_eq!(Failure::Unreachable(String::new()).blame(), Blame::Server);
        assert_eq!(Failure::Silent(Duration::ZERO).blame(), Blame::Server);
        assert_eq!(refused(503), Blame::Perhaps);
        assert_eq!(refused(429), Blame::Perhaps);
        assert_eq!(refused(403), Blame::None);
        assert_eq!(refused(410), Blame::None);
        assert_eq!(refused(422), Blame::None);
    }
}
