//! Events (`events.k8s.io/v1`), as clients write them: kept apart from the objects that are followed.

use serde_json::{Map, Value};

use super::status::Status;

/// What is written to.
const PREFIX: &str = "/apis/events.k8s.io/v1/namespaces/";

/// The namespace, and the name where one is given, if `path` is one of events.
pub(super) fn place(path: &str) -> Option<(&str, Option<&str>)> {
    let parts: Vec<&str> = path.strip_prefix(PREFIX)?.split('/').collect();
    match parts[..] {
        [namespace, "events"] => Some((namespace, None)),
        [namespace, "events", name] => Some((namespace, Some(name))),
        _ => None,
    }
}

/// All that were written.
#[derive(Debug, Default)]
pub(super) struct Events {
    pub(super) all: Vec<Value>,
    /// The code that all writes are refused with, if they are.
    pub(super) refused: Option<u16>,
}

impl Events {
    /// Takes a new one, if it is valid.
    pub(super) fn create(&mut self, namespace: &str, body: &[u8]) -> Result<Value, Status> {
        if let Some(code) = self.refused {
            return Err(Status::of(code));
        }
        let event: Value = serde_json::from_slice(body)
            .map_err(|error| Status::bad_request(&error.to_string()))?;
        check(namespace, &event).map_err(|field| Status::invalid(&field))?;
        let name = &event["metadata"]["name"];
        if self.all.iter().any(|one| one["metadata"]["name"] == *name) {
            return Err(Status::of(409));
        }
        self.all.push(event.clone());
        Ok(event)
    }

    /// Changes one by a merge patch (RFC 7396).
    pub(super) fn patch(&mut self, name: &str, body: &[u8]) -> Result<Value, Status> {
        if let Some(code) = self.refused {
            return Err(Status::of(code));
        }
        let patch: Value = serde_json::from_slice(body)
            .map_err(|error| Status::bad_request(&error.to_string()))?;
        let mut all = self.all.iter_mut();
        let event = all.find(|one| one["metadata"]["name"] == name);
        let event = event.ok_or_else(|| Status::of(404))?;
        merge(event, patch);
        Ok(event.clone())
    }
}

/// What the API demands of an event; the error names the field.
fn check(namespace: &str, event: &Value) -> Result<(), String> {
    let wrong = |field: &str| Err(format!("{field}: Required value, or not as it must be"));
    for field in [
        "eventTime",
        "reportingController",
        "reportingInstance",
        "reason",
        "action",
    ] {
        if event[field].as_str().unwrap_or_default().is_empty() {
            return wrong(field);
        }
    }
    if !matches!(event["type"].as_str(), Some("Normal" | "Warning")) {
        return wrong("type");
    }
    if event["metadata"]["namespace"] != namespace || !event["metadata"]["name"].is_string() {
        return wrong("metadata");
    }
    let of = event["regarding"]["namespace"]
        .as_str()
        .unwrap_or("default");
    if of != namespace || !event["regarding"]["kind"].is_string() {
        return wrong("regarding");
    }
    let note = event["note"].as_str().unwrap_or_default();
    if note.len() > 1024 {
        return wrong("note");
    }
    Ok(())
}

fn merge(into: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *into = patch;
        return;
    };
    if !into.is_object() {
        *into = Value::Object(Map::new());
    }
    for (name, value) in patch {
        if value.is_null() {
            into.as_object_mut().map(|all| all.remove(&name));
        } else {
            merge(&mut into[name], value);
        }
    }
}
