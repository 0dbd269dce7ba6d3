//! When the programs on devices serve: above a packet backend that does, which gets what they pass on; or
//! alone, where there is none.

use std::time::{Duration, Instant};

use proxy_model::{Device, NodeState, PacketLayer};

use super::{
    EbpfBackend,
    edge::{Edge, Seen},
    leave,
};
use crate::flags::Tc;

/// How long to wait before they are loaded again.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// The programs on devices, if they serve.
#[derive(Default)]
pub struct Outside {
    pub(super) edge: Option<Edge>,
    beneath: PacketLayer,
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
    /// What becomes of what they pass on. Returns whether that changes when they serve, or how.
    pub fn lies_over(&mut self, beneath: PacketLayer) -> bool {
        std::mem::replace(&mut self.beneath, beneath) != beneath
    }

    /// Whether clients outside are served by every device that they may come in by.
    pub fn serves_clients(&self) -> bool {
        let devices = self.edge.as_ref().map(Edge::devices).unwrap_or_default();
        devices.iter().any(Seen::is_served) && !devices.iter().any(Seen::is_missed)
    }

    /// The devices of the node, while programs serve some. `keeps_clients`: what they are told.
    pub fn devices(&self, keeps_clients: bool) -> Vec<Device> {
        let seen = self.edge.as_ref().map(Edge::devices).unwrap_or_default();
        seen.iter().map(|seen| seen.told(keeps_clients)).collect()
    }

    /// What becomes of clients outside that they do not serve.
    const fn otherwise(&self) -> &'static str {
        match self.beneath {
            PacketLayer::Absent => "not served",
            PacketLayer::Waits | PacketLayer::Serves => "left to the layer beneath",
        }
    }
}

impl EbpfBackend {
    /// Makes the programs on devices serve `state`, if they are to. A failure is told, and tried again:
    /// the packet backend serves meanwhile, if there is one.
    pub(super) fn serve_outside(&mut self, state: &NodeState) {
        let beneath = self.outside.beneath;
        if let Some(edge) = &mut self.outside.edge {
            edge.configure(state, &self.options, beneath);
            return;
        }
        let wanted = match self.options.tc {
            Tc::On => true,
            // What they pass on meanwhile would stay with a layer that has nothing in force.
            Tc::Auto => beneath != PacketLayer::Waits,
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
        match Edge::start(&self.pins, self.loaded.place, &self.options, state, beneath) {
            Ok(edge) => {
                let devices = edge.devices();
                let served = devices.iter().filter(|device| device.is_served());
                let served = served.count();
                tracing::info!(devices = served, "serving clients outside");
                if served == 0 && !self.options.devices.is_empty() {
                    let named = self.options.devices.iter().map(ToString::to_string);
                    tracing::warn!(
                        devices = named.collect::<Vec<_>>().join(", "),
                        clients = self.outside.otherwise(),
                        text = "those that --devices names, or culvert.devices, are not there, or \
                                cannot be served; `proxy-agent state` says why",
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
                        clients = self.outside.otherwise(),
                        "programs on devices do not serve; trying again"
                    );
                }
                self.outside.failed = Some(Instant::now());
            }
        }
    }

    /// Tries again what failed, also if nothing changes.
    pub(super) fn serve_outside_again(&mut self, state: &NodeState) {
        if self.outside.failed.is_some() && self.outside.edge.is_none() {
            self.serve_outside(state);
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
