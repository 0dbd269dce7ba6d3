//! What is owed besides the state once it is in force: chains and ranges to be deleted, clients to
//! be forgotten, UDP flows to be removed. Tried with each sync, and what fails by itself, every now
//! and then, for a short time at once.

use std::{collections::BTreeSet, net::SocketAddr, sync::Arc, time::Instant};

use proxy_backend::{ConntrackObserver, Retry};
use proxy_conntrack::Cleaner;
use proxy_model::{ChangeSet, IpFamily, NodeState};

use super::{clients, socket::Netlink, stale::Stale};
use crate::{plan::Plan, wanted::Wanted};

/// All of it.
#[derive(Debug, Default)]
pub struct Owed {
    stale: Stale,
    /// There may be clients with session affinity whose endpoint has left.
    orphans: bool,
    forgetting: Retry,
    /// UDP flows that outlive what they were led by.
    cleaner: Cleaner,
}

impl Owed {
    /// Takes what `plan`, which is written, leaves over. What another agent left in sets is not
    /// known before the first sync is over.
    pub fn take(&mut self, family: IpFamily, plan: &Plan, is_first: bool) {
        self.stale.put(family, plan);
        self.orphans |= is_first || clients::may_be_orphaned(plan);
    }

    /// Takes UDP frontends that somebody else has served and nobody does now.
    pub fn take_flows(&mut self, frontends: impl IntoIterator<Item = SocketAddr>) {
        self.cleaner.owe(frontends);
    }

    /// Names of chains and ranges that wait for being deleted.
    pub fn stale(&self, family: IpFamily) -> BTreeSet<Arc<str>> {
        self.stale.names(family).collect()
    }

    /// Tells `observer` of each clean.
    pub fn observed_by(&mut self, observer: ConntrackObserver) {
        self.cleaner.observed_by(observer);
    }

    /// What cleaning conntrack came to.
    pub fn cleaner(&self) -> &Cleaner {
        &self.cleaner
    }

    /// Does what can be done at once, `state` being in force. Returns with how many transactions.
    pub fn after_sync(
        &mut self,
        netlink: &mut Netlink,
        tables: &[Wanted; 2],
        state: &NodeState,
        change: &ChangeSet,
    ) -> u32 {
        self.spare(tables);
        let transactions = self.forget(netlink, tables) + self.stale.delete_new(netlink);
        if let Err(error) = self.cleaner.after_sync(state, change) {
            tracing::warn!(
                %error,
                text = "UDP clients may keep sending to endpoints that are gone; retried",
                "stale flows not removed"
            );
        }
        transactions
    }

    /// Does what is left of it, as far as it is time to try again. Returns with how many transactions.
    pub fn tend(&mut self, netlink: &mut Netlink, tables: &[Wanted; 2]) -> u32 {
        match self.cleaner.tend(Instant::now()) {
            Ok(None) => {}
            Ok(Some(cleaned)) => {
                tracing::info!(removed = cleaned.deleted(), "stale flows removed after all");
            }
            Err(error) => tracing::warn!(%error, "stale flows still not removed"),
        }
        self.spare(tables);
        self.forget(netlink, tables) + self.stale.tend(netlink)
    }

    /// Nothing that is wanted again is deleted.
    fn spare(&mut self, tables: &[Wanted; 2]) {
        if !self.stale.is_empty() {
            self.stale.spare(&tables.each_ref().map(|wanted| {
                let ranges = wanted.ranges.keys().cloned();
                wanted.chain_names().into_iter().chain(ranges).collect()
            }));
        }
    }

    fn forget(&mut self, netlink: &mut Netlink, tables: &[Wanted; 2]) -> u32 {
        let now = Instant::now();
        if !self.orphans || !self.forgetting.is_due(now) {
            return 0;
        }
        self.orphans = false;
        let mut transactions = 0;
        for wanted in tables {
            match clients::forget(netlink, wanted) {
                Ok(done) => transactions += done,
                Err(error) => {
                    tracing::warn!(%error, "clients of endpoints that left not forgotten");
                    self.orphans = true;
                }
            }
        }
        self.forgetting.tried(!self.orphans, now);
        transactions
    }
}
