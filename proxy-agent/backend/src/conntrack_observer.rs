//! The observer of flows that backends remove from connection tracking.

use std::{fmt, sync::Arc, time::Duration};

use proxy_model::IpFamily;

/// Called with a family, how many of its flows were removed, and how long that took.
#[derive(Clone)]
pub struct ConntrackObserver(Arc<dyn Fn(IpFamily, usize, Duration) + Send + Sync>);

impl ConntrackObserver {
    /// An observer that calls `hears`, which must not block.
    pub fn new(hears: impl Fn(IpFamily, usize, Duration) + Send + Sync + 'static) -> Self {
        Self(Arc::new(hears))
    }

    /// `removed` flows of `family` were removed, which took so long.
    pub fn cleaned(&self, family: IpFamily, removed: usize, took: Duration) {
        (self.0)(family, removed, took);
    }
}

impl Default for ConntrackObserver {
    /// An observer that does nothing.
    fn default() -> Self {
        Self::new(|_, _, _| {})
    }
}

impl fmt::Debug for ConntrackObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ConntrackObserver").finish_non_exhaustive()
    }
}
