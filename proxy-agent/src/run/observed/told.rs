//! What of the layers is told on the Node object: each once, when it has lasted, and when it is over.
//! Pure; the clock is passed in.

use std::time::{Duration, Instant};

use crate::events::{News, Regarding};

/// What was told so far.
#[derive(Debug)]
pub(super) struct Told {
    /// What passes by itself sooner is nothing for an operator.
    patience: Duration,
    behind_since: Option<Instant>,
    degraded: bool,
    /// Kinds of things that Service ports need and no layer can do, as far as it was told.
    gaps: usize,
}

const fn news(warning: bool, reason: &'static str, action: &'static str, note: String) -> News {
    News {
        regarding: Regarding::Node,
        warning,
        reason,
        action,
        note,
    }
}

impl Told {
    pub(super) const fn new(patience: Duration) -> Self {
        Self {
            patience,
            behind_since: None,
            degraded: false,
            gaps: 0,
        }
    }

    /// What is told has lasted for so long from now on.
    pub(super) const fn patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Why the state is not in force everywhere, if it is not.
    pub(super) fn layers(&mut self, behind: Option<&str>, now: Instant) -> Option<News> {
        let Some(why) = behind else {
            self.behind_since = None;
            return std::mem::take(&mut self.degraded).then(|| {
                let note = "what Services and endpoints say is in force again in every layer";
                news(false, "ServiceProxyRecovered", "Sync", note.to_owned())
            });
        };
        let since = *self.behind_since.get_or_insert(now);
        let lasted = now.saturating_duration_since(since) >= self.patience;
        if !lasted || std::mem::replace(&mut self.degraded, true) {
            return None;
        }
        let note =
            format!("changes of Services and endpoints are not in force on this node: {why}");
        Some(news(true, "ServiceProxyDegraded", "Sync", note))
    }

    /// How many kinds of things Service ports need and no layer in force can do, and which these are.
    pub(super) fn gaps(&mut self, kinds: usize, what: &str) -> Option<News> {
        let before = std::mem::replace(&mut self.gaps, kinds);
        match (before, kinds) {
            (0, 1..) => {
                let note = format!(
                    "Service ports need what nothing on this node can do ({what}); `proxy-agent state` \
                     names them, and `proxy-agent check` says what it would take"
                );
                Some(news(true, "ServicesNotServed", "Sync", note))
            }
            (1.., 0) => {
                let note = "nothing needs what nothing on this node can do any more".to_owned();
                Some(news(false, "ServicesServed", "Sync", note))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_is_told_of_once_it_has_failed_for_long_and_when_it_is_well_again() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut told = Told::new(Duration::from_mins(1));
        let mut said = |behind, at| told.layers(behind, after(at)).map(|news| news.reason);
        assert_eq!(said(Some("layer a is behind"), 0), None);
        assert_eq!(said(None, 59), None, "it was never told");
        assert_eq!(said(Some("layer a is behind"), 100), None);
        assert_eq!(
            said(Some("layer b is behind"), 160),
            Some("ServiceProxyDegraded")
        );
        assert_eq!(said(Some("layer b is behind"), 300), None);
        assert_eq!(said(None, 301), Some("ServiceProxyRecovered"));
        assert_eq!(said(None, 302), None);
    }

    #[test]
    fn gaps_are_told_when_there_are_any_and_when_there_are_none() {
        let mut told = Told::new(Duration::ZERO);
        let mut said = |ports| told.gaps(ports, "sctp").map(|news| news.reason);
        assert_eq!(said(0), None);
        assert_eq!(said(2), Some("ServicesNotServed"));
        assert_eq!(said(3), None);
        assert_eq!(said(0), Some("ServicesServed"));
    }
}
