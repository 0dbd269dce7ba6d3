//! `/statusz` and `/flagz`, as Kubernetes' components have them since 1.36: text for people, and
//! objects of `config.k8s.io` for programs that ask for exactly these. What they are asked for is
//! decided by the header `Accept`.
//!
//! Of kube-proxy, because that is whose place this agent takes: so whoever looks for these pages
//! finds them.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use axum::{
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{JSON, text, with_type};

/// Whose pages they are.
const COMPONENT: &str = "kube-proxy";
/// The release of Kubernetes that this agent behaves as.
const EMULATES: &str = "1.36";
const WARNING: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting \
                       compatibility guarantees and is for debugging purposes only.";
const YAML: &str = "application/yaml";
/// The versions that 1.36 serves.
const VERSIONS: [&str; 2] = ["v1beta1", "v1alpha1"];

/// In which form a page is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    Object {
        version: &'static str,
        /// JSON or YAML.
        media: &'static str,
    },
}

/// The first form of those that the client takes; `None` if it takes none of ours.
fn wanted(headers: &HeaderMap, kind: &str) -> Option<Form> {
    let all = headers.get_all(header::ACCEPT);
    let mut all = all
        .iter()
        .filter_map(|value| value.to_str().ok())
        .peekable();
    if all.peek().is_none() {
        return Some(Form::Text);
    }
    all.flat_map(|line| line.split(','))
        .find_map(|one| form(one, kind))
}

fn form(accepted: &str, kind: &str) -> Option<Form> {
    let mut parts = accepted.split(';').map(str::trim);
    let media = parts.next()?;
    let parameters: BTreeMap<&str, &str> = parts.filter_map(|part| part.split_once('=')).collect();
    let media = match media {
        "" | "*/*" | "text/*" | "text/plain" => return Some(Form::Text),
        JSON => JSON,
        YAML => YAML,
        _ => return None,
    };
    let asked = ["g", "as"].map(|name| parameters.get(name).copied());
    let version = parameters.get("v")?;
    let version = VERSIONS.into_iter().find(|known| known == version)?;
    (asked == [Some("config.k8s.io"), Some(kind)]).then_some(Form::Object { version, media })
}

fn object(form: Form, kind: &str, plain: impl FnOnce() -> String, rest: Value) -> Response {
    let Form::Object { version, media } = form else {
        return text(plain());
    };
    let mut object = json!({
        "kind": kind,
        "apiVersion": format!("config.k8s.io/{version}"),
        "metadata": { "name": COMPONENT },
    });
    if let (Some(object), Value::Object(rest)) = (object.as_object_mut(), rest) {
        object.extend(rest);
    }
    match media {
        JSON => with_type(JSON, object.to_string()),
        _ => match serde_saphyr::to_string(&object) {
            Ok(yaml) => with_type(YAML, yaml),
            Err(error) => {
                (StatusCode::INTERNAL_SERVER_ERROR, text(error.to_string())).into_response()
            }
        },
    }
}

fn not_acceptable() -> Response {
    let reason = "none of the media types of Accept can be had: text/plain, or application/json or \
                  application/yaml with v=v1beta1, g=config.k8s.io and as=Statusz or as=Flagz\n";
    (StatusCode::NOT_ACCEPTABLE, text(reason)).into_response()
}

/// Since when this process runs, and what it is. `paths` are the pages of this port.
pub(super) fn statusz(
    headers: &HeaderMap,
    started: SystemTime,
    up: Duration,
    paths: &[&str],
) -> Response {
    let Some(form) = wanted(headers, "Statusz") else {
        return not_acceptable();
    };
    let started = Timestamp::try_from(started).unwrap_or(Timestamp::UNIX_EPOCH);
    let version = env!("CARGO_PKG_VERSION");
    let seconds = up.as_secs();
    let plain = || {
        format!(
            "\n{COMPONENT} statusz\n{WARNING}\n\nStarted: {}\nUp: {} hr {:02} min {:02} sec\nBinary \
             version: culvert {version}\nEmulation version: {EMULATES}\nPaths: {}\n",
            started.strftime("%a %b %e %H:%M:%S UTC %Y"),
            seconds / 3600,
            seconds / 60 % 60,
            seconds % 60,
            paths.join(" ")
        )
    };
    let rest = json!({
        "startTime": started.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        "uptimeSeconds": seconds,
        "binaryVersion": version,
        "emulationVersion": EMULATES,
        "paths": paths,
    });
    object(form, "Statusz", plain, rest)
}

/// The flags of this process, each with its value.
pub(super) fn flagz(headers: &HeaderMap, flags: &BTreeMap<String, String>) -> Response {
    let Some(form) = wanted(headers, "Flagz") else {
        return not_acceptable();
    };
    let plain = || {
        let lines = flags
            .iter()
            .map(|(name, value)| format!("{name}={value}\n"));
        format!(
            "\n{COMPONENT} flags\n{WARNING}\n\n{}",
            lines.collect::<String>()
        )
    };
    object(form, "Flagz", plain, json!({ "flags": flags }))
}
