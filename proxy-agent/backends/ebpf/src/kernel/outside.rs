//! When the programs on devices serve: above a packet backend that does, which gets what they pass on.

use std::time::{Duration, Instant};

use proxy_model::{Device, NodeState};

use super::{EbpfBackend, edge::Edge, leave};
use crate::flags::Tc;

/// How long to wait before they are loaded again.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// The programs on devices, if they serve.
#[derive(Default)]
pub struct Outside {
    pub(super) edge: Option<Edge>,
    /// A packet backend beneath serves.
    beneath: bool,
    /// The last attempt to load them failed.
    failed: Option<Instant>,
    ending: Ending,
}

/// What an earlier agent left, where programs on devices are not to serve any more.
#[derive(Debug, Default)]
enum Ending {
    /// Nobody looked.
    #[default]
    Unknown,
    /// Connections went on then.
    GoesOn(Instant),
    /// Nothing is left.
    Over,
}

impl Outside {
    /// Whether a packet backend beneath serves.
    pub fn lies_over(&mut self, serves: bool) {
        self.beneath = serves;
    }

    /// The devices of the node, while programs serve some. `keeps_clients`: what they are told.
    pub fn devices(&self, keeps_clients: bool) -> Vec<Device> {
        let seen = self.edge.as_ref().map(Edge::devices).unwrap_or_default();
        seen.iter().map(|seen| seen.told(keeps_clients)).collect()
    }
}

impl EbpfBackend {
    /// Makes the programs on devices serve `state`, if they are to. A failure is told, and tried again:
    /// the packet backend serves meanwhile.
    pub(super) fn serve_outside(&mut self, state: &NodeState) {
        if let Some(edge) = &mut self.outside.edge {
            edge.configure(state, &self.options);
            return;
        }
        let wanted = match self.options.tc {
            Tc::On => true,
            Tc::Auto => self.outside.beneath,
            Tc::Off => {
                self.end_outside();
                false
            }
        };
        let waits = self
            .outside
            .failed
            .is_some_and(|at| at.elapsed() < RETRY_AFTER);
        if !wanted || waits {
            return;
        }
        match Edge::start(&self.pins, self.loaded.place, &self.options, state) {
            Ok(edge) => {
                let devices = edge.devices();
                let served = devices.iter().filter(|device| device.is_served());
                let served = served.count();
                tracing::info!(devices = served, "serving clients outside");
                if served == 0 && !self.options.devices.is_empty() {
                    let named = self.options.devices.iter().map(ToString::to_string);
                    tracing::warn!(
                        devices = named.collect::<Vec<_>>().join(", "),
                        text = "those that --devices names, or culvert.devices, are not there, or \
                                cannot be served; `proxy-agent state` says why. Clients outside are \
                                left to the layer beneath until one comes",
                        "no device is served"
                    );
                }
                self.outside.edge = Some(edge);
                self.outside.failed = None;
            }
            Err(error) => {
                // Those of an earlier run may go by Service maps that nobody writes any more.
                if let Err(error) = leave::wind_down(&self.pins) {
                    tracing::warn!(%error, "earlier programs on devices go on taking new connections");
                }
                if self.outside.failed.is_none() {
                    tracing::warn!(
                        reason = error.to_string(),
                        "clients outside are left to the layer beneath; trying again"
                    );
                }
                self.outside.failed = Some(Instant::now());
            }
        }
    }

    /// Has those of an earlier run take no connection any more, and takes them off once the last one has ended.
    fn end_outside(&mut self) {
        let waits = match self.outside.ending {
            Ending::Unknown => false,
            Ending::GoesOn(since) => since.elapsed() < RETRY_AFTER,
            Ending::Over => true,
        };
        if waits {
            return;
        }
        match leave::wind_down(&self.pins) {
            Ok(0) => {
                let problems = leave::detach(&self.pins);
                self.outside.ending = if problems.is_empty() {
                    Ending::Over
                } else {
                    Ending::GoesOn(Instant::now())
                };
                for problem in problems {
                    tracing::warn!(
                        reason = problem.to_string(),
                        "an earlier program may stay on a device"
                    );
                }
            }
            Ok(open) => {
                if matches!(self.outside.ending, Ending::Unknown) {
                    tracing::info!(open, "programs on devices stay until their connections end");
                }
                self.outside.ending = Ending::GoesOn(Instant::now());
            }
            Err(error) => {
                tracing::warn!(%error, "earlier programs on devices go on taking new connections");
                self.outside.ending = Ending::GoesOn(Instant::now());
            }
        }
    }
}
