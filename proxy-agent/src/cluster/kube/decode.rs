//! One object, one event of a watch, the head of a list: JSON to values. Pure. An object that
//! cannot be decoded is a value too, so that it stops nothing but itself.

use std::borrow::Cow;

use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;

use super::failure::{Failure, Status};
use crate::cluster::{
    brief::brief,
    object::{Map, Metadata, Object},
};

/// On the bookmark that ends a streaming list.
const ANNOTATION_END: &str = "k8s.io/initial-events-end";

/// An object that cannot be decoded, as far as it can be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed {
    pub(super) namespace: Option<String>,
    pub(super) name: Option<String>,
    pub(super) resource_version: Option<String>,
    /// Path of the field that makes no sense.
    pub(super) field: String,
    pub(super) message: String,
}

impl Malformed {
    pub(super) fn metadata(&self) -> Metadata {
        Metadata {
            name: self.name.clone(),
            namespace: self.namespace.clone(),
            ..Metadata::default()
        }
    }
}

/// No name of an object is longer, in bytes: the API server takes no others.
const LONGEST_NAME: usize = 253;

/// Refuses an object with a name that no object has: names are kept, and are in every log line.
fn named<T: Object>(object: T) -> Result<T, Malformed> {
    let Metadata {
        name, namespace, ..
    } = object.metadata();
    let fits = |name: &Option<String>| name.as_ref().is_none_or(|it| it.len() <= LONGEST_NAME);
    for (field, name) in [("metadata.name", name), ("metadata.namespace", namespace)] {
        if !fits(name) {
            return Err(Malformed {
                namespace: namespace.clone().filter(|_| fits(namespace)),
                name: None,
                resource_version: object.metadata().resource_version.clone(),
                field: field.to_owned(),
                message: format!("longer than {LONGEST_NAME} bytes, the limit for names"),
            });
        }
    }
    Ok(object)
}

/// Decodes one object.
pub(super) fn object<T: Object>(json: &[u8]) -> Result<T, Malformed> {
    match serde_json::from_slice(json) {
        Ok(Map(object)) => named(object),
        // Only now with a record of the path, which costs time.
        Err(error) => Err(malformed::<Map<T>>(json, &[], &error)),
    }
}

/// Says what is wrong with the object at `path` within `json`, which is no `T`.
fn malformed<T: for<'de> Deserialize<'de>>(
    json: &[u8],
    path: &[&str],
    error: &serde_json::Error,
) -> Malformed {
    let located =
        serde_path_to_error::deserialize::<_, T>(&mut serde_json::Deserializer::from_slice(json));
    let (field, message) = match located {
        Ok(_) => (String::new(), error.to_string()),
        Err(error) => (error.path().to_string(), error.inner().to_string()),
    };
    let prefix: String = path.iter().flat_map(|step| [*step, "."]).collect();
    let value: Value = serde_json::from_slice(json).unwrap_or_default();
    let object = path.iter().fold(&value, |value, step| &value[*step]);
    let text = |field: &str| object["metadata"][field].as_str().map(str::to_owned);
    let name = |field: &str| text(field).filter(|name| name.len() <= LONGEST_NAME);
    Malformed {
        namespace: name("namespace"),
        name: name("name"),
        resource_version: text("resourceVersion"),
        field: brief(field.strip_prefix(&prefix).unwrap_or(&field)),
        message: brief(&message),
    }
}

/// One event of a watch.
#[derive(Debug)]
pub(super) enum Event<T> {
    /// An object is new or changed.
    Changed(Result<T, Malformed>),
    /// An object is gone, or no longer selected; this is its last form.
    Deleted(Result<T, Malformed>),
    /// Nothing changed up to this version.
    Bookmark {
        resource_version: Option<String>,
        /// All objects of a streaming list have been told.
        ends_list: bool,
    },
    /// The watch is over.
    Error(Failure),
    /// Something that a later API may say.
    Unknown,
}

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[expect(dead_code, reason = "must be there, and must be JSON")]
    object: IgnoredAny,
}

#[derive(Deserialize)]
struct With<T> {
    object: T,
}

#[derive(Deserialize)]
struct Bookmark {
    #[serde(default)]
    metadata: BookmarkMetadata,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct BookmarkMetadata {
    resource_version: Option<String>,
    annotations: Option<Value>,
}

/// Decodes one line of a watch. An error if it is no event at all: then nothing that follows can
/// be relied on.
pub(super) fn event<T: Object>(line: &[u8]) -> Result<Event<T>, Failure> {
    let garbled = |error: serde_json::Error| {
        Failure::Garbled(format!("in a watch, {}", brief(&error.to_string())))
    };
    // What `object` holds depends on `type`.
    let head: Head<'_> = serde_json::from_slice(line).map_err(garbled)?;
    Ok(match &*head.kind {
        "ADDED" | "MODIFIED" => Event::Changed(object_of(line)),
        "DELETED" => Event::Deleted(object_of(line)),
        "BOOKMARK" => {
            let bookmark: With<Bookmark> = serde_json::from_slice(line).map_err(garbled)?;
            let metadata = bookmark.object.metadata;
            let end = metadata
                .annotations
                .as_ref()
                .and_then(|annotations| annotations.get(ANNOTATION_END));
            Event::Bookmark {
                resource_version: metadata.resource_version,
                ends_list: end.is_some_and(|end| end == "true"),
            }
        }
        "ERROR" => {
            let status: With<Status> = serde_json::from_slice(line).map_err(garbled)?;
            Event::Error(status.object.into_failure(None, None))
        }
        _ => Event::Unknown,
    })
}

fn object_of<T: Object>(line: &[u8]) -> Result<T, Malformed> {
    match serde_json::from_slice::<With<Map<T>>>(line) {
        Ok(With {
            object: Map(object),
        }) => named(object),
        Err(error) => Err(malformed::<With<Map<T>>>(line, &["object"], &error)),
    }
}

/// What a list says of itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ListHead {
    /// At which version of the cluster's data it holds.
    pub(super) resource_version: Option<String>,
    /// Where the next page begins, if there is one.
    pub(super) next_page: Option<String>,
}

/// Decodes a list of `kind` without its items. Anything else that looks like one is none: an empty
/// list takes away every object of its kind.
pub(super) fn list_head(kind: &str, json: &[u8]) -> Result<ListHead, Failure> {
    #[derive(Deserialize)]
    struct List {
        kind: String,
        metadata: Option<ListMetadata>,
        #[expect(dead_code, reason = "must be there; it is null where Go has no list")]
        items: IgnoredAny,
    }

    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ListMetadata {
        resource_version: Option<String>,
        r#continue: Option<String>,
    }

    let list: List = serde_json::from_slice(json)
        .map_err(|error| Failure::Garbled(format!("in a list, {}", brief(&error.to_string()))))?;
    if list.kind.strip_suffix("List") != Some(kind) {
        let found = brief(&list.kind);
        let message = format!("a {found} instead of a {kind}List");
        return Err(Failure::Garbled(message));
    }
    let metadata = list.metadata.unwrap_or_default();
    let non_empty = |text: Option<String>| text.filter(|text| !text.is_empty());
    Ok(ListHead {
        resource_version: non_empty(metadata.resource_version),
        next_page: non_empty(metadata.r#continue),
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use serde_json::json;

    use super::*;
    use crate::cluster::object::{EndpointSlice, Service};

    fn read(name: &str) -> String {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/api-server");
        fs::read_to_string(data.join(name)).unwrap()
    }

    #[test]
    fn real_watches_are_decoded_as_a_whole() {
        let mut bookmarks = Vec::new();
        for line in read("api-endpointslices-watchlist.ndjson").lines() {
            match event::<EndpointSlice>(line.as_bytes()).unwrap() {
                Event::Changed(slice) => assert!(slice.unwrap().metadata.name.is_some()),
                Event::Bookmark {
                    resource_version,
                    ends_list,
                } => {
                    bookmarks.push((resource_version.unwrap(), ends_list));
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(bookmarks, [("333".to_owned(), true)]);
        let mut kinds = [0; 3];
        for line in read("api-services-watch.ndjson").lines() {
            match event::<Service>(line.as_bytes()).unwrap() {
                Event::Changed(service) => {
                    service.unwrap();
                    kinds[0] += 1;
                }
                Event::Deleted(service) => {
                    service.unwrap();
                    kinds[1] += 1;
                }
                Event::Bookmark { ends_list, .. } => {
                    assert!(!ends_list);
                    kinds[2] += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(kinds.iter().all(|&count| count > 0), "{kinds:?}");
    }

    #[test]
    fn what_no_object_is_called_is_no_name_and_what_is_said_of_objects_is_short() {
        let long = "x".repeat(1 << 20);
        for (json, field) in [
            (
                json!({"metadata": {"name": long, "resourceVersion": "7"}}),
                "metadata.name",
            ),
            (
                json!({"metadata": {"name": "a", "namespace": long}}),
                "metadata.namespace",
            ),
            (json!({"metadata": {"name": long}, "spec": 7}), "spec"),
            (json!({"metadata": {"name": "a"}, "spec": long}), "spec"),
        ] {
            let malformed = super::object::<Service>(json.to_string().as_bytes()).unwrap_err();
            assert_eq!(malformed.field, field);
            assert!(malformed.message.len() < 500, "{}", malformed.message.len());
            let longest = malformed.name.as_deref().unwrap_or_default().len();
            assert!(longest <= LONGEST_NAME);
        }
        let line = format!("{{\"type\":\"BOOKMARK\",\"object\":{{\"metadata\":\"{long}\"}}}}");
        let failure = event::<Service>(line.as_bytes()).unwrap_err();
        assert!(failure.to_string().len() < 500);
    }

    #[test]
    fn a_malformed_object_is_named_as_far_as_it_can_be_read() {
        let object = r#"{"metadata":{"namespace":"shop","name":"web","resourceVersion":"7"},
            "spec":{"ports":[{"port":80},{"port":"x"}]}}"#;
        let expected = |message: &str| Malformed {
            namespace: Some("shop".to_owned()),
            name: Some("web".to_owned()),
            resource_version: Some("7".to_owned()),
            field: "spec.ports[1].port".to_owned(),
            message: message.to_owned(),
        };
        let malformed = super::object::<Service>(object.as_bytes()).unwrap_err();
        assert!(
            malformed
                .message
                .starts_with("invalid type: string \"x\", expected i32")
        );
        assert_eq!(malformed, expected(&malformed.message));
        let line = format!(r#"{{"type":"ADDED","object":{object}}}"#);
        let Ok(Event::Changed(Err(malformed))) = event::<Service>(line.as_bytes()) else {
            panic!("{line}")
        };
        assert_eq!(malformed, expected(&malformed.message));
        let nameless = super::object::<Service>(br#"{"metadata": 7}"#).unwrap_err();
        assert_eq!((nameless.name, &*nameless.field), (None, "metadata"));
        assert!(
            super::object::<Service>(b"{\"metadata\"")
                .unwrap_err()
                .name
                .is_none()
        );
        assert!(super::object::<Service>(b"[]").is_err());
    }

    #[test]
    fn what_is_no_event_is_a_failure_and_what_is_unknown_is_not() {
        for line in [
            "",
            "{",
            "7",
            "{}",
            r#"{"type":"ADDED"}"#,
            r#"{"type":"ADDED","object":{"a"}"#,
        ] {
            let result = event::<Service>(line.as_bytes());
            assert!(matches!(result, Err(Failure::Garbled(_))), "{line}");
        }
        let line = br#"{"type":"SPLIT","object":7}"#;
        assert!(matches!(event::<Service>(line), Ok(Event::Unknown)));
        // `status` is a map in a Service and a text in a Status.
        let line = br#"{"type":"ERROR","object":{"kind":"Status","status":"Failure","code":410}}"#;
        let Ok(Event::Error(failure)) = event::<Service>(line) else {
            panic!("no error")
        };
        assert!(matches!(failure, Failure::Expired(_)));
    }

    #[test]
    fn the_head_of_a_list_says_where_to_go_on() {
        let list = |rest: &str| format!(r#"{{"kind":"ServiceList","items":[]{rest}}}"#);
        let list_head = |json: &str| list_head("Service", json.as_bytes());
        let head = list_head(&list(
            r#","metadata":{"resourceVersion":"7","continue":""}"#,
        ))
        .unwrap();
        assert_eq!(
            (head.resource_version.as_deref(), head.next_page),
            (Some("7"), None)
        );
        let head = list_head(&list(r#","metadata":{"continue":"abc"}"#)).unwrap();
        assert_eq!(head.next_page.as_deref(), Some("abc"));
        assert_eq!(list_head(&list("")), Ok(ListHead::default()));
        assert!(list_head(r#"{"kind":"ServiceList","items":null}"#).is_ok());
        // None of these says that there is no Service.
        for other in [
            "<html>",
            "{}",
            r#"{"kind":"ServiceList","metadata":{"resourceVersion":"7"}}"#,
            r#"{"kind":"PodList","items":[],"metadata":{"resourceVersion":"7"}}"#,
            r#"{"kind":"List","items":[],"metadata":{"resourceVersion":"7"}}"#,
            r#"{"kind":"Status","code":200,"metadata":{"resourceVersion":"7"}}"#,
        ] {
            assert!(list_head(other).is_err(), "{other}");
        }
    }
}
