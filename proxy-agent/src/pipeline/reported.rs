//! What the log was told and still holds: each failure and each diagnostic is told when it comes,
//! and when it is over, never again in between. Pure; does not know how a log is written.

use std::{cmp::Ordering, collections::BTreeMap, sync::Arc};

use proxy_model::{Capability, Diagnostic, ServiceFailure, ServicePortKey};

/// What the log must be told of a layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Programmed {
    /// A Service port cannot be programmed, or cannot for another reason than before.
    Not(ServiceFailure),
    /// A Service port that could not be programmed now is.
    Now(ServicePortKey),
}

/// What the log must be told of the state, and of what serves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// Something about an object does not make sense.
    Diagnosed(Diagnostic),
    /// What was said of an object no longer holds.
    Resolved(Diagnostic),
    /// A Service port needs what the backend lacks.
    Gap(Capability, ServicePortKey),
    /// It no longer does, or is gone.
    GapClosed(Capability, ServicePortKey),
    /// Many Service ports need it since this moment.
    Gaps(ManyGaps),
    /// Many no longer do, or are gone.
    GapsClosed(ManyGaps),
}

/// Many Service ports that began or ceased to miss one capability at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManyGaps {
    /// The capability.
    pub capability: Capability,
    /// Which Service ports.
    pub keys: Vec<ServicePortKey>,
    /// How many miss it now.
    pub open: usize,
}

/// Service ports that a layer could not program, as far as the log was told.
#[derive(Debug, Default)]
pub struct Failures(BTreeMap<ServicePortKey, String>);

impl Failures {
    /// Takes the failures of a successful sync. `wanted` tells whether a Service port is still
    /// part of the state: of one that was removed there is nothing to tell.
    pub fn take(
        &mut self,
        now: Vec<ServiceFailure>,
        wanted: impl Fn(&ServicePortKey) -> bool,
    ) -> Vec<Programmed> {
        let mut before = std::mem::take(&mut self.0);
        let mut news = Vec::new();
        for failure in now {
            if before.remove(&failure.key).as_ref() != Some(&failure.reason) {
                news.push(Programmed::Not(failure.clone()));
            }
            self.0.insert(failure.key, failure.reason);
        }
        let over = before.into_keys().filter(wanted);
        news.extend(over.map(Programmed::Now));
        news
    }

    /// All of them, and why.
    pub fn all(&self) -> impl Iterator<Item = (&ServicePortKey, &str)> {
        self.0.iter().map(|(key, reason)| (key, reason.as_str()))
    }
}

/// What does not make sense about objects, as far as the log was told.
#[derive(Debug, Default)]
pub struct Diagnostics(Arc<[Diagnostic]>);

impl Diagnostics {
    /// Takes the state's diagnostics, which are ordered and unique. Costs nothing when they are
    /// the same list as last time.
    pub fn take(&mut self, now: &Arc<[Diagnostic]>) -> Vec<News> {
        if Arc::ptr_eq(&self.0, now) {
            return Vec::new();
        }
        let before = std::mem::replace(&mut self.0, Arc::clone(now));
        let (mut before, mut now) = (before.iter().peekable(), now.iter().peekable());
        let mut news = Vec::new();
        loop {
            let order = match (before.peek(), now.peek()) {
                (None, None) => break news,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(old), Some(new)) => old.cmp(new),
            };
            let old = before.next_if(|_| order.is_le());
            let new = now.next_if(|_| order.is_ge());
            match (old, new) {
                (Some(old), None) => news.push(News::Resolved(old.clone())),
                (None, Some(new)) => news.push(News::Diagnosed(new.clone())),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proxy_model::{IpFamily, Protocol, ServiceName};

    use super::*;

    fn key(name: &str) -> ServicePortKey {
        ServicePortKey {
            service: ServiceName::new("shop", name),
            port: "".into(),
            protocol: Protocol::Tcp,
            family: IpFamily::V4,
        }
    }

    fn failure(name: &str, reason: &str) -> ServiceFailure {
        ServiceFailure {
            key: key(name),
            reason: reason.to_owned(),
        }
    }

    fn diagnostics(messages: &[&str]) -> Arc<[Diagnostic]> {
        let diagnostic = |message: &&str| Diagnostic {
            object: "Service shop/web".into(),
            field: "spec".to_owned(),
            message: (*message).to_owned(),
        };
        messages.iter().map(diagnostic).collect()
    }

    #[test]
    fn a_failure_is_told_once_and_again_when_its_reason_changes() {
        let mut told = Failures::default();
        let (a, b) = (failure("a", "full"), failure("b", "full"));
        let news = |told: &mut Failures, now: &[&ServiceFailure]| {
            told.take(now.iter().copied().cloned().collect(), |_| true)
        };
        assert_eq!(news(&mut told, &[&a]), [Programmed::Not(a.clone())]);
        assert_eq!(news(&mut told, &[&a]), []);
        assert_eq!(news(&mut told, &[&a, &b]), [Programmed::Not(b.clone())]);
        let other = failure("a", "no room for two");
        assert_eq!(
            news(&mut told, &[&other, &b]),
            [Programmed::Not(other.clone())]
        );
        assert_eq!(news(&mut told, &[&other, &b]), []);
    }

    #[test]
    fn an_end_of_failure_is_told_unless_the_service_is_gone() {
        let mut told = Failures::default();
        let both = || vec![failure("a", "full"), failure("b", "full")];
        told.take(both(), |_| true);
        let wanted = |wanted: &ServicePortKey| *wanted == key("b");
        assert_eq!(told.take(vec![], wanted), [Programmed::Now(key("b"))]);
        assert_eq!(told.take(vec![], |_| true), []);
        assert_eq!(told.take(both(), |_| true).len(), 2, "it came back");
    }

    #[test]
    fn a_diagnostic_is_told_when_it_comes_and_when_it_goes() {
        let mut told = Diagnostics::default();
        let summary = |news: Vec<News>| -> Vec<String> {
            let line = |one| match one {
                News::Diagnosed(new) => format!("+{}", new.message),
                News::Resolved(old) => format!("-{}", old.message),
                other => format!("{other:?}"),
            };
            news.into_iter().map(line).collect()
        };
        for (now, expected) in [
            (&["b", "d"][..], &["+b", "+d"][..]),
            (&["b", "d"], &[]),
            (&["a", "b", "c", "d", "e"], &["+a", "+c", "+e"]),
            (&["b", "c"], &["-a", "-d", "-e"]),
            (&["c", "x"], &["-b", "+x"]),
            (&[], &["-c", "-x"]),
            (&[], &[]),
        ] {
            assert_eq!(summary(told.take(&diagnostics(now))), expected);
        }
    }

    #[test]
    fn a_list_of_diagnostics_is_shared_not_copied() {
        let list = diagnostics(&["a"]);
        let mut told = Diagnostics::default();
        assert_eq!(told.take(&list).len(), 1);
        assert_eq!(told.take(&list), []);
        assert_eq!(Arc::strong_count(&list), 2);
    }
}
