//! Answers that are complete at once: lists, pages of lists, single objects.

use bytes::Bytes;

use super::{
    kind::Kind,
    object::Object,
    query::Query,
    status::Status,
    store::{Expired, Store},
};

/// The list that `query` asks for. `page` limits pages further than the client does, also where
/// the watch cache of a real server would not make pages at all.
pub(super) fn list(store: &Store, query: &Query, page: Option<usize>) -> Result<Bytes, Status> {
    let selector = query.selector()?;
    let version = query.number("resourceVersion")?;
    let limit = query.number("limit")?.unwrap_or_default();
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let limit = match page {
        _ if limit == 0 => usize::MAX,
        Some(page) => page.min(limit),
        // What comes from the watch cache comes in one piece.
        None if version == Some(0) => usize::MAX,
        None => limit,
    };
    if let Some(token) = query.parameter("continue") {
        let (version, after) =
            read_token(token).ok_or_else(|| Status::bad_request("continue key is not valid"))?;
        let selected = store.select_at(version, query.kind, &selector, after);
        let selected = selected.map_err(|Expired { .. }| {
            Status::expired(
                "The provided continue parameter is too old to display a consistent list result. \
                 You can start a new list without the continue parameter.",
            )
        })?;
        let selected = selected.iter().map(AsRef::as_ref);
        return Ok(write(query.kind, version, selected, limit));
    }
    let exact = query.parameter("resourceVersionMatch") == Some("Exact");
    match version {
        Some(version) if version > store.version() => {
            Err(Status::too_large(version, store.version()))
        }
        // Without a match rule, a limit makes the version an exact one.
        Some(version) if exact || (limit < usize::MAX && version > 0) => {
            let selected = store
                .select_at(version, query.kind, &selector, "")
                .map_err(|Expired { oldest }| Status::too_old(version, oldest))?;
            let selected = selected.iter().map(AsRef::as_ref);
            Ok(write(query.kind, version, selected, limit))
        }
        _ => {
            let selected = store.select(query.kind, &selector, "").map(AsRef::as_ref);
            Ok(write(query.kind, store.version(), selected, limit))
        }
    }
}

/// The one object that `query` asks for.
pub(super) fn get(store: &Store, query: &Query) -> Result<Bytes, Status> {
    let name = query.name.as_deref().unwrap_or_default();
    let namespace = query.namespace.as_deref().unwrap_or_default();
    let object = store
        .get(query.kind, namespace, name)
        .ok_or_else(|| Status::not_found(query.kind.plural(), name))?;
    let mut out = Vec::new();
    object.write_object(object.version, &mut out);
    out.push(b'\n');
    Ok(out.into())
}

fn write<'a>(
    kind: Kind,
    version: u64,
    mut objects: impl Iterator<Item = &'a Object>,
    limit: usize,
) -> Bytes {
    let mut items = Vec::new();
    let mut last = None;
    for object in objects.by_ref().take(limit) {
        if last.is_some() {
            items.push(b',');
        }
        object.write_item(&mut items);
        last = Some(object);
    }
    let token = match (last, objects.next()) {
        (Some(last), Some(_)) => {
            let token = write_token(version, &Object::key(&last.namespace, &last.name));
            format!(",\"continue\":\"{token}\"")
        }
        _ => String::new(),
    };
    let mut out = format!(
        "{{\"kind\":\"{}List\",\"apiVersion\":\"{}\",\"metadata\":{{\"resourceVersion\":\"{version}\"\
         {token}}},\"items\":[",
        kind.name(),
        kind.api_version()
    )
    .into_bytes();
    out.append(&mut items);
    out.extend_from_slice(b"]}\n");
    out.into()
}

/// Where the next page begins. Clients must not look into it, and must encode it when they send
/// it back: unlike a real one, it has characters that need that.
fn write_token(version: u64, last: &str) -> String {
    format!("{version}&{last}=")
}

fn read_token(token: &str) -> Option<(u64, &str)> {
    let (version, last) = token.split_once('&')?;
    Some((version.parse().ok()?, last.strip_suffix('=')?))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn store() -> Store {
        let mut store = Store::new();
        for name in ["a", "b", "c", "d", "e"] {
            let service = json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": {"namespace": "shop", "name": name},
            });
            store.apply(&service).unwrap();
        }
        store
    }

    fn ask(store: &Store, parameters: &[(&str, &str)]) -> Result<(Vec<String>, Value), u16> {
        let parameters = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(parameters)
            .finish();
        let query = Query::parse("/api/v1/services", &parameters).unwrap();
        let bytes = list(store, &query, None).map_err(|status| status.code)?;
        let list: Value = serde_json::from_slice(&bytes).unwrap();
        let names = list["items"].as_array().unwrap().iter();
        let names = names.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned());
        Ok((names.collect(), list["metadata"].clone()))
    }

    #[test]
    fn pages_show_one_version_until_it_expires() {
        let mut store = store();
        let (names, metadata) = ask(&store, &[("limit", "2")]).unwrap();
        assert_eq!(names, ["a", "b"]);
        let token = metadata["continue"].as_str().unwrap().to_owned();
        store.delete(Kind::Service, "shop", "c").unwrap();
        let next = [("limit", "2"), ("continue", token.as_str())];
        let (names, then) = ask(&store, &next).unwrap();
        assert_eq!(names, ["c", "d"], "as it was when the first page was made");
        assert_eq!(then["resourceVersion"], metadata["resourceVersion"]);
        let token = then["continue"].as_str().unwrap().to_owned();
        let (names, then) = ask(&store, &[("limit", "2"), ("continue", &token)]).unwrap();
        assert_eq!(
            (names, &then["continue"]),
            (vec!["e".to_owned()], &Value::Null)
        );
        store.compact();
        assert_eq!(ask(&store, &next).unwrap_err(), 410);
        assert_eq!(ask(&store, &[("continue", "nonsense")]).unwrap_err(), 400);
    }

    #[test]
    fn versions_are_honoured() {
        let mut store = store();
        let before = store.version();
        store.delete(Kind::Service, "shop", "a").unwrap();
        let exact = |version: u64| {
            let version = version.to_string();
            let parameters = [
                ("resourceVersion", version.as_str()),
                ("resourceVersionMatch", "Exact"),
            ];
            ask(&store, &parameters).map(|(names, _)| names.len())
        };
        assert_eq!(exact(before), Ok(5));
        assert_eq!(exact(before + 1), Ok(4));
        assert_eq!(exact(1), Err(410));
        assert_eq!(exact(before + 2), Err(504));
        let cached = [("resourceVersion", "0"), ("limit", "2")];
        assert_eq!(
            ask(&store, &cached).unwrap().0.len(),
            4,
            "the cache makes no pages"
        );
    }
}
