//! One version of an object, in the bytes that are sent.
//!
//! ```text
//! {"metadata":{"name":"web",…,"resourceVersion":"   head
//!                                                  287   the version
//!                                                     ","labels":{…}},"spec":{…}}   tail
//! ```
//!
//! A list shows an object so; an event puts kind and API version before it, and the event of a
//! deletion another version into it. So the bytes are made once, however many clients watch.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use serde_json::{Map, Value};

use super::kind::Kind;

/// Fields that the API server writes first, in this order; all others follow by name.
const ORDER: [&str; 12] = [
    "metadata",
    "name",
    "generateName",
    "namespace",
    "uid",
    "creationTimestamp",
    "labels",
    "annotations",
    "spec",
    "status",
    "addressType",
    "endpoints",
];

/// What an event says has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Happened {
    Added,
    Modified,
    Deleted,
}

impl Happened {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// One version of an object.
#[derive(Debug, Clone)]
pub(super) struct Object {
    pub(super) kind: Kind,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) version: u64,
    pub(super) labels: BTreeMap<String, String>,
    /// `spec.clusterIP` and `spec.type`, which field selectors may ask for.
    pub(super) cluster_ip: String,
    pub(super) service_type: String,
    generation: u64,
    uid: String,
    head: Bytes,
    /// Absent for an object that is sent exactly as it was given.
    tail: Option<Bytes>,
}

impl Object {
    /// Where `value` belongs: its kind, namespace and name.
    pub(super) fn place(value: &Value) -> Result<(Kind, String, String)> {
        let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str);
        let (api_version, kind) = (text("/apiVersion"), text("/kind"));
        let kind = api_version
            .zip(kind)
            .and_then(|(version, kind)| Kind::find(version, kind))
            .with_context(|| {
                format!("the fake API server knows no kind {kind:?} of {api_version:?}")
            })?;
        let name = text("/metadata/name")
            .with_context(|| format!("a {kind} has no metadata.name; use apply_raw"))?;
        let namespace = if kind.is_namespaced() {
            text("/metadata/namespace").unwrap_or("default")
        } else {
            ""
        };
        Ok((kind, namespace.to_owned(), name.to_owned()))
    }

    /// The object that `value` describes, as `version`. `before` is the version it replaces.
    pub(super) fn new(value: &Value, version: u64, before: Option<&Self>) -> Result<Self> {
        let (kind, namespace, name) = Self::place(value)?;
        let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str);
        let owned = |pointer: &str| text(pointer).unwrap_or_default().to_owned();
        let labels = value.pointer("/metadata/labels").and_then(Value::as_object);
        let labels = labels.into_iter().flatten();
        let labels = labels
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .collect();
        let uid = before.map(|before| before.uid.clone());
        let uid = uid
            .or_else(|| text("/metadata/uid").map(str::to_owned))
            .unwrap_or_else(|| format!("00000000-0000-4000-8000-{version:012x}"));
        let generation = before.map_or(1, |before| before.generation + 1);
        let mut object = Self {
            kind,
            namespace,
            name,
            version,
            labels,
            cluster_ip: owned("/spec/clusterIP"),
            service_type: owned("/spec/type"),
            generation,
            uid,
            head: Bytes::new(),
            tail: None,
        };
        object.write(value)?;
        Ok(object)
    }

    /// An object that is sent as the JSON value `item`, whatever that is.
    pub(super) fn raw(place: (Kind, String, String), version: u64, item: &str) -> Self {
        let (kind, namespace, name) = place;
        Self {
            kind,
            namespace,
            name,
            version,
            labels: BTreeMap::new(),
            cluster_ip: String::new(),
            service_type: String::new(),
            generation: 1,
            uid: String::new(),
            head: Bytes::copy_from_slice(item.as_bytes()),
            tail: None,
        }
    }

    /// The same object under another version.
    pub(super) fn renumbered(&self, version: u64) -> Self {
        Self {
            version,
            ..self.clone()
        }
    }

    /// Its key among all of its kind, in the order in which lists show them.
    pub(super) fn key(namespace: &str, name: &str) -> String {
        if namespace.is_empty() {
            format!("/{name}")
        } else {
            format!("/{namespace}/{name}")
        }
    }

    fn write(&mut self, value: &Value) -> Result<()> {
        let empty = Map::new();
        let mut metadata = match value.get("metadata") {
            Some(Value::Object(metadata)) => metadata.clone(),
            _ => empty.clone(),
        };
        for ours in ["name", "namespace", "uid", "resourceVersion", "generation"] {
            metadata.remove(ours);
        }
        let mut head = br#"{"metadata":{"name":"#.to_vec();
        serde_json::to_writer(&mut head, &self.name)?;
        if self.kind.is_namespaced() {
            head.extend_from_slice(br#","namespace":"#);
            serde_json::to_writer(&mut head, &self.namespace)?;
        }
        head.extend_from_slice(br#","uid":"#);
        serde_json::to_writer(&mut head, &self.uid)?;
        head.extend_from_slice(br#","resourceVersion":""#);
        let mut tail = vec![b'"'];
        if self.kind.has_generation() {
            tail.extend_from_slice(format!(r#","generation":{}"#, self.generation).as_bytes());
        }
        if !metadata.contains_key("creationTimestamp") {
            tail.extend_from_slice(br#","creationTimestamp":"2026-01-01T00:00:00Z""#);
        }
        write_fields(&mut tail, &metadata)?;
        if !metadata.contains_key("managedFields") {
            tail.extend_from_slice(br#","managedFields":"#);
            tail.extend_from_slice(self.kind.managed_fields().as_bytes());
        }
        tail.push(b'}');
        let mut rest = value.as_object().unwrap_or(&empty).clone();
        for ours in ["kind", "apiVersion", "metadata"] {
            rest.remove(ours);
        }
        write_fields(&mut tail, &rest)?;
        tail.push(b'}');
        self.head = head.into();
        self.tail = Some(tail.into());
        Ok(())
    }

    /// Adds it as an item of a list.
    pub(super) fn write_item(&self, out: &mut Vec<u8>) {
        self.write_from(0, self.version, out);
    }

    /// Adds the line of an event. The object of a deletion carries the version of the deletion.
    pub(super) fn write_event(&self, happened: Happened, version: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(br#"{"type":""#);
        out.extend_from_slice(happened.as_str().as_bytes());
        out.extend_from_slice(br#"","object":"#);
        self.write_object(version, out);
        out.extend_from_slice(b"}\n");
    }

    /// Adds it as a whole object, with kind and API version.
    pub(super) fn write_object(&self, version: u64, out: &mut Vec<u8>) {
        if self.head.starts_with(b"{\"") {
            out.extend_from_slice(opening(self.kind).as_bytes());
            self.write_from(1, version, out);
        } else {
            self.write_from(0, version, out);
        }
    }

    fn write_from(&self, start: usize, version: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.head[start..]);
        if let Some(tail) = &self.tail {
            out.extend_from_slice(version.to_string().as_bytes());
            out.extend_from_slice(tail);
        }
    }
}

/// The line of a bookmark.
pub(super) fn bookmark(kind: Kind, version: u64, ends_initial_events: bool) -> Bytes {
    let annotations = if ends_initial_events {
        r#","annotations":{"k8s.io/initial-events-end":"true"}"#
    } else {
        ""
    };
    let (opening, fields) = (opening(kind), kind.empty_fields());
    format!(
        "{{\"type\":\"BOOKMARK\",\"object\":{opening}\"metadata\":{{\
         \"resourceVersion\":\"{version}\"{annotations}}},{fields}}}}}\n"
    )
    .into()
}

/// How a whole object begins.
fn opening(kind: Kind) -> String {
    let (name, version) = (kind.name(), kind.api_version());
    format!("{{\"kind\":\"{name}\",\"apiVersion\":\"{version}\",")
}

/// Adds `,"key":value` for each field, in the server's order.
fn write_fields(out: &mut Vec<u8>, fields: &Map<String, Value>) -> Result<()> {
    let rank = |key: &str| ORDER.iter().position(|known| *known == key);
    let mut fields: Vec<_> = fields.iter().collect();
    fields.sort_by_key(|(key, _)| (rank(key).unwrap_or(ORDER.len()), *key));
    for (key, value) in fields {
        out.push(b',');
        serde_json::to_writer(&mut *out, key)?;
        out.push(b':');
        serde_json::to_writer(&mut *out, value)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn an_object_looks_like_a_real_one_in_lists_and_events() {
        let value = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"namespace": "shop", "name": "web-a", "managedFields": [],
                "labels": {"kubernetes.io/service-name": "web"}},
            "ports": [], "endpoints": [], "addressType": "IPv4",
        });
        let object = Object::new(&value, 7, None).unwrap();
        let rest = "\"generation\":1,\"creationTimestamp\":\"2026-01-01T00:00:00Z\",\
            \"labels\":{\"kubernetes.io/service-name\":\"web\"},\"managedFields\":[]},\
            \"addressType\":\"IPv4\",\"endpoints\":[],\"ports\":[]}";
        let names = "\"metadata\":{\"name\":\"web-a\",\"namespace\":\"shop\",\
            \"uid\":\"00000000-0000-4000-8000-000000000007\"";
        assert_eq!(
            text(|out| object.write_item(out)),
            format!("{{{names},\"resourceVersion\":\"7\",{rest}")
        );
        assert_eq!(
            text(|out| object.write_event(Happened::Deleted, 9, out)),
            format!(
                "{{\"type\":\"DELETED\",\"object\":{{\"kind\":\"EndpointSlice\",\
                 \"apiVersion\":\"discovery.k8s.io/v1\",{names},\"resourceVersion\":\"9\",{rest}}}\n"
            )
        );
    }

    #[test]
    fn raw_objects_are_sent_as_they_are() {
        let place = || (Kind::Node, String::new(), "n".to_owned());
        for (item, event) in [
            ("null", r#"{"type":"ADDED","object":null}"#),
            (
                r#"{"metadata":5}"#,
                r#"{"type":"ADDED","object":{"kind":"Node","apiVersion":"v1","metadata":5}}"#,
            ),
        ] {
            let object = Object::raw(place(), 1, item);
            assert_eq!(text(|out| object.write_item(out)), item);
            let line = text(|out| object.write_event(Happened::Added, 1, out));
            assert_eq!(line.trim_end(), event);
        }
    }
}
