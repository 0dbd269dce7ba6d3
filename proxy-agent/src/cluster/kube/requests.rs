//! What is asked for: paths and queries. Pure but for chance.

use std::time::Duration;

use ::kube::{
    api::{ListParams, WatchParams},
    core::Request,
};
use http::Uri;

use super::backoff::random;

/// Objects per page, for servers that do not answer from their watch cache; those that do send
/// all at once.
const PAGE: u32 = 500;

/// Asks for one kind of objects.
#[derive(Debug)]
pub(super) struct Requests {
    pub(super) path: String,
    /// Label selector.
    pub(super) labels: Option<&'static str>,
    /// Field selector.
    pub(super) fields: Option<String>,
}

impl Requests {
    /// The list of all objects, or its next page. `from_memory` takes what the server has there,
    /// which may be a little old.
    pub(super) fn list(&self, next_page: Option<String>, from_memory: bool) -> Uri {
        let first_page = next_page.is_none();
        let params = ListParams {
            label_selector: self.labels.map(str::to_owned),
            field_selector: self.fields.clone(),
            limit: Some(PAGE),
            continue_token: next_page,
            ..ListParams::default()
        };
        let request = Request::new(&self.path).list(&params);
        let path = request
            .expect("these parameters are valid")
            .into_parts()
            .0
            .uri;
        if !(first_page && from_memory) {
            return path;
        }
        // `kube` leaves this out beside a limit. Servers ignore the limit instead if they have
        // all in memory.
        let path = format!("{path}&resourceVersion=0");
        path.parse().expect("a parameter keeps a URI valid")
    }

    /// All changes after `version`; `listing` asks for all objects first. For `time` at least,
    /// and twice as long at most: not all nodes should come back in the same moment.
    pub(super) fn watch(&self, version: &str, listing: bool, time: Duration) -> Uri {
        let timeout = time.mul_f64(1.0 + random()).as_secs().max(1);
        let params = WatchParams {
            label_selector: self.labels.map(str::to_owned),
            field_selector: self.fields.clone(),
            timeout: Some(u32::try_from(timeout).unwrap_or(u32::MAX)),
            bookmarks: true,
            send_initial_events: listing,
        };
        let request = Request::new(&self.path).watch(&params, version);
        request
            .expect("these parameters are valid")
            .into_parts()
            .0
            .uri
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(path: &Uri) -> Vec<String> {
        let query = path.query().unwrap().split('&');
        query
            .map(str::to_owned)
            .filter(|pair| !pair.is_empty())
            .collect()
    }

    fn requests() -> Requests {
        Requests {
            path: "/api/v1/services".to_owned(),
            labels: Some("!a"),
            fields: Some("b!=c".to_owned()),
        }
    }

    #[test]
    fn the_first_list_is_from_memory_and_later_pages_follow_their_token() {
        let first = requests().list(None, true);
        assert_eq!(first.path(), "/api/v1/services");
        let selectors = ["fieldSelector=b%21%3Dc", "labelSelector=%21a", "limit=500"];
        assert_eq!(
            query(&first),
            [&selectors[..], &["resourceVersion=0"]].concat()
        );
        assert_eq!(query(&requests().list(None, false)), selectors);
        let next = requests().list(Some("x=y".to_owned()), true);
        assert_eq!(query(&next), [&selectors[..], &["continue=x%3Dy"]].concat());
    }

    #[test]
    fn a_watch_goes_on_from_a_version_or_lists_first() {
        let five = Duration::from_mins(5);
        let path = requests().watch("7", false, five);
        let pairs = query(&path);
        assert!(pairs.contains(&"resourceVersion=7".to_owned()), "{pairs:?}");
        assert!(
            pairs.contains(&"allowWatchBookmarks=true".to_owned()),
            "{pairs:?}"
        );
        assert!(!path.to_string().contains("sendInitialEvents"), "{pairs:?}");
        let seconds = pairs
            .iter()
            .find_map(|pair| pair.strip_prefix("timeoutSeconds="));
        let seconds: u64 = seconds.unwrap().parse().unwrap();
        assert!((300..=600).contains(&seconds), "{seconds}");
        let pairs = query(&requests().watch("0", true, Duration::ZERO));
        for wanted in [
            "sendInitialEvents=true",
            "resourceVersionMatch=NotOlderThan",
            "resourceVersion=0",
            "timeoutSeconds=1",
        ] {
            assert!(pairs.contains(&wanted.to_owned()), "{wanted}: {pairs:?}");
        }
    }
}
