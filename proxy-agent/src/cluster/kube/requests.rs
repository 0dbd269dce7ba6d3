//! What is asked for: paths and queries. Pure but for chance.

use std::time::Duration;

use ::kube::{
    api::{ListParams, WatchParams},
    core::Request,
};
use http::Uri;

use super::{backoff::random, failure::Failure};
use crate::cluster::brief::brief;

/// Objects per page, for servers that do not answer from their watch cache; those that do send
/// all at once.
const PAGE: u32 = 500;

/// Bytes of a version or a continue token. Both are the server's to write and go back to it in a
/// URL, which takes less than 64 KiB: real ones have some ten, and some hundred with the name of an
/// object in them. Encoded, each byte may become three.
const LONGEST_TOKEN: usize = 16 << 10;

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
    pub(super) fn list(
        &self,
        next_page: Option<String>,
        from_memory: bool,
    ) -> Result<Uri, Failure> {
        let first_page = next_page.is_none();
        bounded("a continue token", next_page.as_deref().unwrap_or_default())?;
        let params = ListParams {
            label_selector: self.labels.map(str::to_owned),
            field_selector: self.fields.clone(),
            limit: Some(PAGE),
            continue_token: next_page,
            ..ListParams::default()
        };
        let request = Request::new(&self.path).list(&params);
        let path = request.map_err(|error| impossible(&error))?.into_parts().0;
        let path = path.uri;
        if !(first_page && from_memory) {
            return Ok(path);
        }
        // `kube` leaves this out beside a limit. Servers ignore the limit instead if they have
        // all in memory.
        let path = format!("{path}&resourceVersion=0");
        path.parse().map_err(|error| impossible(&error))
    }

    /// All changes after `version`; `listing` asks for all objects first. For `time` at least,
    /// and twice as long at most: not all nodes should come back in the same moment.
    pub(super) fn watch(
        &self,
        version: &str,
        listing: bool,
        time: Duration,
    ) -> Result<Uri, Failure> {
        bounded("a resource version", version)?;
        let timeout = time.mul_f64(1.0 + random()).as_secs().max(1);
        let params = WatchParams {
            label_selector: self.labels.map(str::to_owned),
            field_selector: self.fields.clone(),
            timeout: Some(u32::try_from(timeout).unwrap_or(u32::MAX)),
            bookmarks: true,
            send_initial_events: listing,
        };
        let request = Request::new(&self.path).watch(&params, version);
        let request = request.map_err(|error| impossible(&error))?;
        Ok(request.into_parts().0.uri)
    }
}

/// What the server said is too long to be said back.
fn bounded(what: &str, text: &str) -> Result<(), Failure> {
    let length = text.len();
    if length <= LONGEST_TOKEN {
        return Ok(());
    }
    Err(Failure::Garbled(format!(
        "{what} of {length} bytes; at most {LONGEST_TOKEN} fit into a request"
    )))
}

fn impossible(error: &dyn std::error::Error) -> Failure {
    Failure::Garbled(format!(
        "it leads to a request that cannot be made: {}",
        brief(&error.to_string())
    ))
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
        let first = requests().list(None, true).unwrap();
        assert_eq!(first.path(), "/api/v1/services");
        let selectors = ["fieldSelector=b%21%3Dc", "labelSelector=%21a", "limit=500"];
        assert_eq!(
            query(&first),
            [&selectors[..], &["resourceVersion=0"]].concat()
        );
        assert_eq!(query(&requests().list(None, false).unwrap()), selectors);
        let next = requests().list(Some("x=y".to_owned()), true).unwrap();
        assert_eq!(query(&next), [&selectors[..], &["continue=x%3Dy"]].concat());
    }

    #[test]
    fn what_does_not_fit_into_a_url_is_a_failure() {
        let requests = requests();
        for length in [LONGEST_TOKEN + 1, 65_534, 70_000, 1 << 20] {
            // Of each, three bytes are made.
            let text = "=".repeat(length);
            let told = [
                requests.list(Some(text.clone()), false),
                requests.watch(&text, false, Duration::ZERO),
            ];
            for failure in told {
                let text = failure.unwrap_err().to_string();
                assert!(text.contains(&format!("of {length} bytes")), "{text}");
            }
        }
        let longest = "=".repeat(LONGEST_TOKEN);
        requests.list(Some(longest.clone()), false).unwrap();
        requests.watch(&longest, false, Duration::ZERO).unwrap();
        // What was typed is no better.
        let requests = Requests {
            fields: Some("x".repeat(70_000)),
            ..requests
        };
        let failure = requests.list(None, true).unwrap_err().to_string();
        assert!(failure.contains("cannot be made"), "{failure}");
    }

    #[test]
    fn a_watch_goes_on_from_a_version_or_lists_first() {
        let five = Duration::from_mins(5);
        let path = requests().watch("7", false, five).unwrap();
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
        let pairs = query(&requests().watch("0", true, Duration::ZERO).unwrap());
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
