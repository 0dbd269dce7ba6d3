//! Label and field selectors, as they are written in requests.

use super::object::Object;

/// Which objects a request asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Selector {
    namespace: Option<String>,
    labels: Vec<(String, Wanted)>,
    fields: Vec<(Field, Wanted)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Wanted {
    Present,
    Absent,
    OneOf(Vec<String>),
    NoneOf(Vec<String>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Name,
    Namespace,
    ClusterIp,
    Type,
}

impl Selector {
    /// Reads `labelSelector` and `fieldSelector`. The error is the server's message.
    pub(super) fn parse(
        namespace: Option<&str>,
        labels: Option<&str>,
        fields: Option<&str>,
    ) -> Result<Self, String> {
        Ok(Self {
            namespace: namespace.map(str::to_owned),
            labels: requirements(labels.unwrap_or_default())
                .map(label)
                .collect::<Result<_, _>>()?,
            fields: requirements(fields.unwrap_or_default())
                .map(field)
                .collect::<Result<_, _>>()?,
        })
    }

    /// Whether `object` is asked for.
    pub(super) fn accepts(&self, object: &Object) -> bool {
        let namespace = self.namespace.as_ref();
        let label = |key: &String| object.labels.get(key).map(String::as_str);
        namespace.is_none_or(|wanted| *wanted == object.namespace)
            && self
                .labels
                .iter()
                .all(|(key, wanted)| wanted.accepts(label(key)))
            && self
                .fields
                .iter()
                .all(|(field, wanted)| wanted.accepts(Some(field.of(object))))
    }
}

impl Wanted {
    fn accepts(&self, value: Option<&str>) -> bool {
        let among =
            |values: &[String]| value.is_some_and(|value| values.iter().any(|v| v == value));
        match self {
            Self::Present => value.is_some(),
            Self::Absent => value.is_none(),
            Self::OneOf(values) => among(values),
            // A label that is not there is none of them, too.
            Self::NoneOf(values) => !among(values),
        }
    }
}

impl Field {
    fn of(self, object: &Object) -> &str {
        match self {
            Self::Name => &object.name,
            Self::Namespace => &object.namespace,
            Self::ClusterIp => &object.cluster_ip,
            Self::Type => &object.service_type,
        }
    }
}

/// Splits at commas that are not in brackets.
fn requirements(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    text.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
    .map(str::trim)
    .filter(|one| !one.is_empty())
}

fn label(text: &str) -> Result<(String, Wanted), String> {
    if let Some(key) = text.strip_prefix('!') {
        return Ok((key.trim().to_owned(), Wanted::Absent));
    }
    if let Some(read) = comparison(text) {
        return Ok(read);
    }
    let (key, rest) = match text.split_once(char::is_whitespace) {
        Some((key, rest)) => (key, rest.trim()),
        None => (text, ""),
    };
    let values = |list: &str| {
        let list = list.trim().strip_prefix('(')?.strip_suffix(')')?;
        Some(
            list.split(',')
                .map(|value| value.trim().to_owned())
                .collect(),
        )
    };
    let wanted = match rest.split_once('(').map(|(operator, _)| operator.trim()) {
        None if rest.is_empty() => Some(Wanted::Present),
        Some("in") => values(&rest["in".len()..]).map(Wanted::OneOf),
        Some("notin") => values(&rest["notin".len()..]).map(Wanted::NoneOf),
        _ => None,
    };
    wanted
        .map(|wanted| (key.to_owned(), wanted))
        .ok_or_else(|| format!("unable to parse requirement: {text}"))
}

fn field(text: &str) -> Result<(Field, Wanted), String> {
    let (key, wanted) =
        comparison(text).ok_or_else(|| format!("invalid selector: '{text}'; can't understand"))?;
    let field = match key.as_str() {
        "metadata.name" => Field::Name,
        "metadata.namespace" => Field::Namespace,
        "spec.clusterIP" => Field::ClusterIp,
        "spec.type" => Field::Type,
        _ => return Err(format!("field label not supported: {key}")),
    };
    Ok((field, wanted))
}

/// `key=value`, `key==value`, `key!=value`.
fn comparison(text: &str) -> Option<(String, Wanted)> {
    let (key, value) = text.split_once('=')?;
    let one = |value: &str| vec![value.trim().to_owned()];
    if let Some(key) = key.strip_suffix('!') {
        return Some((key.trim().to_owned(), Wanted::NoneOf(one(value))));
    }
    let value = value.strip_prefix('=').unwrap_or(value);
    Some((key.trim().to_owned(), Wanted::OneOf(one(value))))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service() -> Object {
        let value = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"namespace": "shop", "name": "web", "labels": {"app": "web", "tier": "a"}},
            "spec": {"clusterIP": "10.96.0.1", "type": "ClusterIP"},
        });
        Object::new(&value, 1, None).unwrap()
    }

    #[test]
    fn label_selectors_select() {
        for (selector, expected) in [
            ("", true),
            ("app", true),
            ("!app", false),
            ("!gone, tier", true),
            ("app=web", true),
            ("app==other", false),
            ("app!=other", true),
            ("gone!=other", true),
            ("app in (web, x),tier=a", true),
            ("app in (x)", false),
            ("app notin (x,web)", false),
            ("gone notin (x)", true),
        ] {
            let parsed = Selector::parse(None, Some(selector), None).unwrap();
            assert_eq!(parsed.accepts(&service()), expected, "{selector}");
        }
        assert!(Selector::parse(None, Some("app like web"), None).is_err());
    }

    #[test]
    fn field_selectors_select() {
        for (selector, expected) in [
            ("metadata.name=web", true),
            ("metadata.name=web,metadata.namespace=other", false),
            ("spec.clusterIP!=None", true),
            ("spec.clusterIP=None", false),
            ("spec.type!=ExternalName", true),
        ] {
            let parsed = Selector::parse(Some("shop"), None, Some(selector)).unwrap();
            assert_eq!(parsed.accepts(&service()), expected, "{selector}");
        }
        let error = Selector::parse(None, None, Some("spec.externalIPs=x")).unwrap_err();
        assert_eq!(error, "field label not supported: spec.externalIPs");
    }

    #[test]
    fn namespaces_select() {
        for (namespace, expected) in [("shop", true), ("other", false)] {
            let parsed = Selector::parse(Some(namespace), None, None).unwrap();
            assert_eq!(parsed.accepts(&service()), expected, "{namespace}");
        }
    }
}
