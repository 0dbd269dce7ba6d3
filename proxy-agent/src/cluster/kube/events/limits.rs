//! How many events are written: a handful at once, then a few a minute, however many nodes have
//! however many Services that fail; and the same news again as a number on the event that is there,
//! once a minute at most. Pure.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use crate::events::News;

/// Events that may be written at once.
const AT_ONCE: u32 = 10;
/// Then one in this time.
const EACH: Duration = Duration::from_secs(20);
/// Between two writes about one event.
const SAME_AGAIN: Duration = Duration::from_mins(1);
/// After so long without news, it is another event. As in Kubernetes' own clients.
const SERIES: Duration = Duration::from_mins(6);
/// News that are remembered.
const MOST: usize = 256;

/// What was written lately.
#[derive(Debug, Default)]
pub(super) struct Limits {
    /// When the next one may be written if none were for long: the more there were, the later.
    full_at: Option<Instant>,
    known: HashMap<News, Known>,
}

#[derive(Debug)]
struct Known {
    name: String,
    count: u32,
    heard: Instant,
    written: Instant,
}

/// What becomes of a piece of news.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is a new event.
    First,
    /// It is the event of this name, and so many in all.
    Again { name: String, count: u32 },
    /// Nothing is written.
    Leave,
}

impl Limits {
    /// Decides about news that came at `now`.
    pub(super) fn judge(&mut self, news: &News, now: Instant) -> Verdict {
        self.known
            .retain(|_, known| now.saturating_duration_since(known.heard) < SERIES);
        let Some(known) = self.known.get_mut(news) else {
            let room = self.known.len() < MOST;
            return if room && self.spend(now) {
                Verdict::First
            } else {
                Verdict::Leave
            };
        };
        known.count = known.count.saturating_add(1);
        known.heard = now;
        if now.saturating_duration_since(known.written) < SAME_AGAIN {
            return Verdict::Leave;
        }
        known.written = now;
        let (name, count) = (known.name.clone(), known.count);
        if self.spend(now) {
            Verdict::Again { name, count }
        } else {
            Verdict::Leave
        }
    }

    /// These news are the event of this name now.
    pub(super) fn written(&mut self, news: &News, name: &str, now: Instant) {
        let known = Known {
            name: name.to_owned(),
            count: 1,
            heard: now,
            written: now,
        };
        self.known.insert(news.clone(), known);
    }

    /// Whether one more may be written.
    fn spend(&mut self, now: Instant) -> bool {
        let full_at = self.full_at.map_or(now, |at| at.max(now)) + EACH;
        let may = full_at.saturating_duration_since(now) <= EACH * AT_ONCE;
        if may {
            self.full_at = Some(full_at);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Regarding;

    fn news(note: &str) -> News {
        News {
            regarding: Regarding::Node,
            warning: true,
            reason: "Failed",
            action: "Listen",
            note: note.to_owned(),
        }
    }

    /// How many of `count` different ones are written at `now`.
    fn storm(limits: &mut Limits, from: u32, count: u32, now: Instant) -> usize {
        let all = (from..from + count).map(|number| news(&number.to_string()));
        let mut written = 0;
        for one in all {
            if limits.judge(&one, now) == Verdict::First {
                limits.written(&one, "name", now);
                written += 1;
            }
        }
        written
    }

    #[test]
    fn a_storm_is_a_handful_and_then_a_few_a_minute() {
        let (mut limits, start) = (Limits::default(), Instant::now());
        assert_eq!(storm(&mut limits, 0, 10_000, start), 10);
        assert_eq!(
            storm(&mut limits, 20_000, 10_000, start + Duration::from_mins(1)),
            3
        );
        let rested = start + Duration::from_hours(1);
        assert_eq!(storm(&mut limits, 40_000, 10_000, rested), 10);
        assert!(limits.known.len() <= MOST);
    }

    #[test]
    fn the_same_again_is_counted_and_written_once_a_minute() {
        let (mut limits, start) = (Limits::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        let same = news("same");
        assert_eq!(limits.judge(&same, start), Verdict::First);
        // Not written after all: then it is still the first.
        assert_eq!(limits.judge(&same, after(1)), Verdict::First);
        limits.written(&same, "a", after(1));
        for seconds in 2..61 {
            assert_eq!(limits.judge(&same, after(seconds)), Verdict::Leave);
        }
        let again = |count| Verdict::Again {
            name: "a".to_owned(),
            count,
        };
        assert_eq!(limits.judge(&same, after(61)), again(61));
        assert_eq!(limits.judge(&same, after(62)), Verdict::Leave);
        // Long after, it is another event.
        assert_eq!(limits.judge(&same, after(62 + 360)), Verdict::First);
    }
}
