//! What a request asks for: path and query, read as the API server reads them.

use super::{kind::Kind, selector::Selector, status::Status};

/// What is done with objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// One object.
    Get,
    /// All objects, perhaps in pages.
    List,
    /// Changes from a version on.
    Watch,
    /// All objects as the first events of a watch (`sendInitialEvents=true`).
    StreamingList,
}

/// A request for objects.
#[derive(Debug, Clone)]
pub(super) struct Query {
    pub(super) verb: Verb,
    pub(super) kind: Kind,
    pub(super) namespace: Option<String>,
    pub(super) name: Option<String>,
    parameters: Vec<(String, String)>,
}

impl Query {
    /// Reads a path and a query; `None` if the path is no kind's.
    pub(super) fn parse(path: &str, query: &str) -> Option<Self> {
        let (kind, rest) = Kind::ALL
            .into_iter()
            .find_map(|kind| Some((kind, split(kind, path)?)))?;
        let parameters: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes())
            .into_owned()
            .collect();
        let mut read = Self {
            verb: Verb::List,
            kind,
            namespace: rest.0,
            name: rest.1,
            parameters,
        };
        read.verb = match (
            &read.name,
            read.flag("watch"),
            read.flag("sendInitialEvents"),
        ) {
            (Some(_), ..) => Verb::Get,
            (None, true, true) => Verb::StreamingList,
            (None, true, false) => Verb::Watch,
            (None, false, _) => Verb::List,
        };
        Some(read)
    }

    /// A parameter; an empty one is as good as none.
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        let mut all = self.parameters.iter();
        let (_, value) = all.find(|(key, _)| key == name)?;
        (!value.is_empty()).then_some(value)
    }

    /// A parameter that is true or false.
    pub(super) fn flag(&self, name: &str) -> bool {
        self.parameter(name)
            .is_some_and(|value| value == "true" || value == "1")
    }

    /// A parameter that is a number.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, Status> {
        let Some(text) = self.parameter(name) else {
            return Ok(None);
        };
        text.parse().map(Some).map_err(|_| {
            Status::invalid(&format!(
                "{name}: Invalid value: {text:?}: strconv.ParseUint"
            ))
        })
    }

    /// Which objects are asked for.
    pub(super) fn selector(&self) -> Result<Selector, Status> {
        Selector::parse(
            self.namespace.as_deref(),
            self.parameter("labelSelector"),
            self.parameter("fieldSelector"),
        )
        .map_err(|message| Status::bad_request(&message))
    }

    /// Which rules of the API the parameters break, if any.
    pub(super) fn check(&self) -> Result<(), Status> {
        let matched = self.parameter("resourceVersionMatch");
        match self.verb {
            Verb::StreamingList if matched != Some("NotOlderThan") => Err(Status::invalid(
                "sendInitialEvents: Forbidden: resourceVersionMatch must be NotOlderThan",
            )),
            Verb::Watch if matched.is_some() => Err(Status::invalid(
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch \
                 unless sendInitialEvents is provided",
            )),
            Verb::List if self.flag("sendInitialEvents") => Err(Status::invalid(
                "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list",
            )),
            Verb::List if matched.is_some() && self.parameter("continue").is_some() => {
                Err(Status::invalid(
                    "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden with \
                     continue",
                ))
            }
            Verb::List if matched.is_some() && self.parameter("resourceVersion").is_none() => {
                Err(Status::invalid(
                    "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless \
                     resourceVersion is provided",
                ))
            }
            _ => Ok(()),
        }
    }
}

/// The namespace and the name in `path`, if it is one of `kind`.
fn split(kind: Kind, path: &str) -> Option<(Option<String>, Option<String>)> {
    let rest = path.strip_prefix(kind.prefix())?;
    let parts: Vec<&str> = rest.split('/').filter(|part| !part.is_empty()).collect();
    let owned = |text: &&str| Some((*text).to_owned());
    match parts.as_slice() {
        [plural, name @ ..] if *plural == kind.plural() && name.len() <= 1 => {
            let name = name.first().and_then(owned);
            // An object in a namespace cannot be asked for without it.
            (name.is_none() || !kind.is_namespaced()).then_some((None, name))
        }
        ["namespaces", namespace, plural, name @ ..]
            if *plural == kind.plural() && kind.is_namespaced() && name.len() <= 1 =>
        {
            Some((owned(namespace), name.first().and_then(owned)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read() {
        for (path, query, expected) in [
            ("/api/v1/services", "", Some((Verb::List, Kind::Service))),
            (
                "/api/v1/namespaces/shop/services",
                "watch=1",
                Some((Verb::Watch, Kind::Service)),
            ),
            ("/api/v1/nodes/node-a", "", Some((Verb::Get, Kind::Node))),
            (
                "/apis/discovery.k8s.io/v1/endpointslices",
                "watch=true&sendInitialEvents=true",
                Some((Verb::StreamingList, Kind::EndpointSlice)),
            ),
            ("/api/v1/pods", "", None),
            ("/api/v1/services/web", "", None),
            ("/apis/discovery.k8s.io/v1beta1/endpointslices", "", None),
        ] {
            let read = Query::parse(path, query).map(|query| (query.verb, query.kind));
            assert_eq!(read, expected, "{path}?{query}");
        }
    }

    #[test]
    fn parameters_are_decoded_and_checked() {
        let read = |query: &str| Query::parse("/api/v1/services", query).unwrap();
        let query = read("labelSelector=%21a%2C%21b&resourceVersion=&limit=5");
        assert_eq!(query.parameter("labelSelector"), Some("!a,!b"));
        assert_eq!(query.parameter("resourceVersion"), None);
        assert_eq!(query.number("limit").unwrap(), Some(5));
        for (query, code) in [
            ("watch=1&sendInitialEvents=true", Some(422)),
            (
                "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
                None,
            ),
            ("watch=1&resourceVersionMatch=NotOlderThan", Some(422)),
            ("resourceVersionMatch=NotOlderThan", Some(422)),
            ("resourceVersionMatch=NotOlderThan&resourceVersion=0", None),
        ] {
            let status = read(query).check().err();
            assert_eq!(status.map(|status| status.code), code, "{query}");
        }
        assert_eq!(read("limit=x").number("limit").unwrap_err().code, 422);
    }
}
