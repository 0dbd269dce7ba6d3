//! What the layers come to, for whoever asks the owner.

use std::time::Instant;

use jiff::{SignedDuration, Timestamp};
use proxy_model::ServiceFailure;

use crate::{
    backend::choice::Choice,
    pipeline::{Layer, Pipeline},
    report::{self, DeviceFacts, LayerFacts, NotProgrammed, explain::InForce},
};

/// Each, for `state`.
pub(super) fn facts(pipeline: &Pipeline) -> Vec<LayerFacts> {
    let (now, wall) = (Instant::now(), Timestamp::now());
    let at = |due: Instant| {
        let wait = SignedDuration::try_from(due.saturating_duration_since(now)).ok()?;
        wall.checked_add(wait).ok()
    };
    let facts = |layer: &Layer| LayerFacts {
        backend: layer.name(),
        in_force: layer.in_force(),
        serves: layer.serves(),
        failure: layer.failure().map(str::to_owned),
        retry_at: layer.due().and_then(at),
        lacks: layer.lacks().to_vec(),
        not_programmed: layer.not_programmed().count(),
        devices: layer.devices().into_iter().map(DeviceFacts::from).collect(),
    };
    pipeline.layers().map(facts).collect()
}

/// What is in force, for `explain`: before any layer is, as if all were.
pub(super) fn in_force(pipeline: &Pipeline, choice: &Choice) -> InForce {
    let serving = pipeline.layers().filter(|layer| layer.serves());
    let mut layers: Vec<_> = serving.map(Layer::name).collect();
    if layers.is_empty() {
        layers.clone_from(&choice.layers);
    }
    let above = pipeline.layers().next();
    let left = above.into_iter().flat_map(Layer::not_programmed);
    InForce {
        choice: Choice {
            layers,
            ..choice.clone()
        },
        left: left.map(|(key, _)| key.clone()).collect(),
        devices: pipeline.layers().flat_map(Layer::devices).collect(),
        troubles: report::troubles(&facts(pipeline)),
    }
}

/// Service ports that a layer could not program, for `state`.
pub(super) fn not_programmed(pipeline: &Pipeline) -> Vec<NotProgrammed> {
    let of = |layer: &Layer| {
        let name = layer.name();
        let all = layer.not_programmed();
        all.map(|(service, reason)| NotProgrammed {
            layer: name,
            service: service.to_string(),
            reason: reason.to_owned(),
        })
        .collect::<Vec<_>>()
    };
    pipeline.layers().flat_map(of).collect()
}

/// The same for a brain: it knows one backend.
pub(super) fn failures(pipeline: &Pipeline) -> Vec<ServiceFailure> {
    let of = |layer: &Layer| {
        let all = layer.not_programmed();
        all.map(|(key, reason)| ServiceFailure {
            key: key.clone(),
            reason: told(pipeline, layer, reason),
        })
        .collect::<Vec<_>>()
    };
    pipeline.layers().flat_map(of).collect()
}

/// Why the state is not in force, for a brain; `None` if nothing failed.
pub(super) fn failure(pipeline: &Pipeline) -> Option<String> {
    let told: Vec<_> = pipeline
        .layers()
        .filter_map(|layer| Some(told(pipeline, layer, layer.failure()?)))
        .collect();
    (!told.is_empty()).then(|| told.join("; "))
}

/// A reason, with the layer where there are several.
fn told(pipeline: &Pipeline, layer: &Layer, reason: &str) -> String {
    if pipeline.layers().count() == 1 {
        reason.to_owned()
    } else {
        format!("{}: {reason}", layer.name())
    }
}
