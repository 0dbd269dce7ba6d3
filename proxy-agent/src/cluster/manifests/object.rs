//! Values of documents to objects that the model knows. A file is read as a whole: all of its
//! problems are found, and any of them rejects it.

use std::{fmt, path::Path, sync::Arc};

use proxy_model::{EndpointSlice, Node, ObjectName, Service, ServiceCidr};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tracing::debug;

use super::document::{self, Format};
use crate::cluster::{
    convert::{self, Converted},
    names::Names,
    object::{self, Map},
};

/// More problems than a person would read at once are counted only.
const MAX_PROBLEMS: usize = 20;

/// One cluster object as a manifest defines it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Object {
    pub(super) key: Key,
    /// Where in its file: `document 2`, or `document 1, items[3]`.
    pub(super) place: String,
    pub(super) content: Arc<Content>,
}

/// Which object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Service(ObjectName),
    Slice(ObjectName),
    Node(Arc<str>),
    ServiceCidr(Arc<str>),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(name) => write!(f, "Service {name}"),
            Self::Slice(name) => write!(f, "EndpointSlice {name}"),
            Self::Node(name) => write!(f, "Node {name}"),
            Self::ServiceCidr(name) => write!(f, "ServiceCIDR {name}"),
        }
    }
}

/// What the object means to the model.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Content {
    Service(Converted<Service>),
    Slice(Converted<EndpointSlice>),
    Node(Converted<Node>),
    ServiceCidr(Converted<ServiceCidr>),
}

/// The objects of a file, or everything that is wrong with it.
pub(super) fn read_file(path: &Path, bytes: &[u8]) -> Result<Vec<Object>, Vec<String>> {
    let text = std::str::from_utf8(bytes).map_err(|error| vec![format!("is not text: {error}")])?;
    let extension = path.extension().and_then(|extension| extension.to_str());
    let documents = document::read(text, Format::of(extension, text));
    if documents.is_empty() {
        // As for `kubectl`. A file that is just being written looks like this for a moment: its
        // objects must not vanish meanwhile.
        let problem = "is empty: write `kind: List` without items if it is to define nothing";
        return Err(vec![problem.to_owned()]);
    }
    let mut reader = Reader::default();
    for document in documents {
        reader.document = document.number;
        match document.value {
            Ok(value) => reader.read(value, &Position::default()),
            Err(problem) => reader.reject("", &problem),
        }
    }
    reader.finish()
}

#[derive(Default)]
struct Reader {
    objects: Vec<Object>,
    problems: Vec<String>,
    problems_not_shown: usize,
    document: usize,
    names: Names,
}

/// Where in a document an object is, and what its list says about it.
#[derive(Default, Clone, Copy)]
struct Position<'a> {
    /// `items[3]`, or empty.
    path: &'a str,
    /// Kind and API version of the items of a `ServiceList` or the like, which may leave them out.
    implied: Option<(&'a str, &'a str)>,
}

impl Position<'_> {
    fn field(&self, field: &str) -> String {
        match (self.path, field) {
            ("", field) => field.to_owned(),
            (path, "" | ".") => path.to_owned(),
            (path, field) => format!("{path}.{field}"),
        }
    }
}

impl Reader {
    fn read(&mut self, mut value: Value, position: &Position<'_>) {
        if !value.is_object() {
            let field = position.field("");
            let separator = if field.is_empty() { "" } else { ": " };
            return self.reject("", &format!("{field}{separator}is not a Kubernetes object"));
        }
        let implied = position.implied;
        let kind = text(&value, "kind")
            .or(implied.map(|(kind, _)| kind))
            .map(str::to_owned);
        let version = text(&value, "apiVersion")
            .or(implied.map(|(_, version)| version))
            .map(str::to_owned);
        let (Some(kind), Some(version)) = (&kind, &version) else {
            let missing = if kind.is_none() { "kind" } else { "apiVersion" };
            let field = position.field(missing);
            return self.reject("", &format!("{field}: is missing, or is not a string"));
        };
        match (version.as_str(), kind.as_str()) {
            ("v1", "List") => self.read_items(&mut value, position, None),
            ("v1", "ServiceList") => {
                self.read_items(&mut value, position, Some(("Service", "v1")));
            }
            ("v1", "NodeList") => self.read_items(&mut value, position, Some(("Node", "v1"))),
            ("discovery.k8s.io/v1", "EndpointSliceList") => {
                let implied = ("EndpointSlice", "discovery.k8s.io/v1");
                self.read_items(&mut value, position, Some(implied));
            }
            ("networking.k8s.io/v1", "ServiceCIDRList") => {
                let implied = ("ServiceCIDR", "networking.k8s.io/v1");
                self.read_items(&mut value, position, Some(implied));
            }
            ("v1", "Service") => {
                self.read_object(value, position, |object: &object::Service, names| {
                    let key = Key::Service(convert::object_name(&object.metadata, names)?);
                    Some((key, Content::Service(convert::service(object, names))))
                });
            }
            ("v1", "Node") => self.read_object(value, position, |object: &object::Node, _| {
                let converted = convert::node(object);
                let key = Key::Node(Arc::clone(&converted.value.as_ref()?.name));
                Some((key, Content::Node(converted)))
            }),
            ("networking.k8s.io/v1", "ServiceCIDR") => {
                self.read_object(value, position, |object: &object::ServiceCidr, _| {
                    let converted = convert::service_cidr(object);
                    let key = Key::ServiceCidr(Arc::clone(&converted.value.as_ref()?.name));
                    Some((key, Content::ServiceCidr(converted)))
                });
            }
            ("discovery.k8s.io/v1", "EndpointSlice") => {
                self.read_object(value, position, |object: &object::EndpointSlice, names| {
                    let key = Key::Slice(convert::object_name(&object.metadata, names)?);
                    Some((key, Content::Slice(convert::slice(object, names))))
                });
            }
            (version, "EndpointSlice" | "EndpointSliceList")
                if version.starts_with("discovery.k8s.io/") =>
            {
                let field = position.field("apiVersion");
                let problem = format!("{field}: {version} is not known: use discovery.k8s.io/v1");
                let about = describe(&value, kind);
                self.reject(&about, &problem);
            }
            (version, kind) => {
                debug!(
                    document = self.document,
                    version, kind, "manifest object ignored"
                );
            }
        }
    }

    fn read_items(
        &mut self,
        list: &mut Value,
        position: &Position<'_>,
        implied: Option<(&str, &str)>,
    ) {
        match list["items"].take() {
            Value::Null => {}
            Value::Array(items) => {
                for (index, item) in items.into_iter().enumerate() {
                    let path = position.field(&format!("items[{index}]"));
                    self.read(
                        item,
                        &Position {
                            path: &path,
                            implied,
                        },
                    );
                }
            }
            _ => {
                let field = position.field("items");
                self.reject("", &format!("{field}: is not a list"));
            }
        }
    }

    fn read_object<T: DeserializeOwned>(
        &mut self,
        value: Value,
        position: &Position<'_>,
        convert: impl FnOnce(&T, &mut Names) -> Option<(Key, Content)>,
    ) {
        let kind = text(&value, "kind").or(position.implied.map(|(kind, _)| kind));
        let about = describe(&value, kind.unwrap_or_default());
        let object: T = match serde_path_to_error::deserialize(value) {
            Ok(Map(object)) => object,
            Err(error) => {
                let field = position.field(&error.path().to_string());
                return self.reject(&about, &format!("{field}: {}", error.inner()));
            }
        };
        let Some((key, content)) = convert(&object, &mut self.names) else {
            let field = position.field("metadata.name");
            return self.reject(&about, &format!("{field}: is missing"));
        };
        let separator = if position.path.is_empty() { "" } else { ", " };
        self.objects.push(Object {
            key,
            place: format!("document {}{separator}{}", self.document, position.path),
            content: Arc::new(content),
        });
    }

    /// Notes a problem of the present document; `about` is its object, as far as known.
    fn reject(&mut self, about: &str, problem: &str) {
        if self.problems.len() == MAX_PROBLEMS {
            self.problems_not_shown += 1;
        } else if about.is_empty() {
            self.problems
                .push(format!("document {}: {problem}", self.document));
        } else {
            self.problems
                .push(format!("document {} ({about}): {problem}", self.document));
        }
    }

    fn finish(mut self) -> Result<Vec<Object>, Vec<String>> {
        if self.problems_not_shown > 0 {
            self.problems
                .push(format!("and {} more problems", self.problems_not_shown));
        }
        if self.problems.is_empty() {
            Ok(self.objects)
        } else {
            Err(self.problems)
        }
    }
}

fn text<'a>(value: &'a Value, field: &str) -> Option<&'a str> {
    value.get(field)?.as_str()
}

/// Kind, namespace and name, as far as they can be read.
fn describe(value: &Value, kind: &str) -> String {
    let metadata = value.get("metadata").unwrap_or(&Value::Null);
    match (text(metadata, "namespace"), text(metadata, "name")) {
        (Some(namespace), Some(name)) => format!("{kind} {namespace}/{name}"),
        (None, Some(name)) => format!("{kind} {name}"),
        (_, None) => kind.to_owned(),
    }
}

#[cfg(test)]
mod tests;
