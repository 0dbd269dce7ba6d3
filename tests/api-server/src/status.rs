//! The API server's way to say no: an object of kind Status.

use bytes::Bytes;
use serde_json::{Value, json};

/// A refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Status {
    /// The HTTP status.
    pub(super) code: u16,
    reason: &'static str,
    message: String,
    /// Seconds to wait, for the header `Retry-After` and for the details.
    pub(super) retry_after: Option<u64>,
}

impl Status {
    fn new(code: u16, reason: &'static str, message: &str) -> Self {
        Self {
            code,
            reason,
            message: message.to_owned(),
            retry_after: None,
        }
    }

    /// The refusal that the server gives with the HTTP status `code`.
    pub(super) fn of(code: u16) -> Self {
        let (reason, message) = match code {
            400 => ("BadRequest", "the request is malformed"),
            401 => ("Unauthorized", "Unauthorized"),
            403 => (
                "Forbidden",
                "services is forbidden: User \"system:kube-proxy\" cannot list resource \
                 \"services\" in API group \"\" at the cluster scope",
            ),
            410 => return Self::expired("The resourceVersion for the provided watch is too old."),
            422 => {
                return Self::invalid(
                    "sendInitialEvents: Forbidden: the WatchList feature gate is disabled",
                );
            }
            429 => (
                "TooManyRequests",
                "The server has received too many requests and has asked us to try again later",
            ),
            503 => (
                "ServiceUnavailable",
                "the server is currently unable to handle the request",
            ),
            504 => (
                "Timeout",
                "Timeout: request did not complete within the allotted time",
            ),
            _ => (
                "InternalError",
                "Internal error occurred: something went wrong",
            ),
        };
        Self::new(code, reason, message)
    }

    /// With seconds to wait.
    pub(super) fn retry_after(mut self, seconds: Option<u64>) -> Self {
        self.retry_after = seconds;
        self
    }

    /// A version that is no longer known.
    pub(super) fn expired(message: &str) -> Self {
        Self::new(410, "Expired", message)
    }

    /// A watch from a version that is no longer known.
    pub(super) fn too_old(version: u64, oldest: u64) -> Self {
        Self::expired(&format!("too old resource version: {version} ({oldest})"))
    }

    /// A list from a version that is not reached yet.
    pub(super) fn too_large(version: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {version}, current: {current}");
        Self::new(504, "Timeout", &message).retry_after(Some(1))
    }

    /// Parameters that break a rule.
    pub(super) fn invalid(message: &str) -> Self {
        let message = format!("ListOptions.meta.k8s.io \"\" is invalid: {message}");
        Self::new(422, "Invalid", &message)
    }

    /// A request that cannot be read.
    pub(super) fn bad_request(message: &str) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// An object that is not there.
    pub(super) fn not_found(plural: &str, name: &str) -> Self {
        let message = format!("{plural} \"{name}\" not found");
        Self::new(404, "NotFound", &message)
    }

    /// As a body.
    pub(super) fn to_bytes(&self) -> Bytes {
        format!("{}\n", self.to_json()).into()
    }

    /// As the line of an event.
    pub(super) fn to_event(&self) -> Bytes {
        format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", self.to_json()).into()
    }

    fn to_json(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if let Some(seconds) = self.retry_after {
            status["details"] = json!({ "retryAfterSeconds": seconds });
        }
        status
    }
}
