//! Choices, for tests of what is said of them.

use proxy_model::Capability;

use super::{Cause, Choice, Refused};

/// eBPF by its mode, as if it lacked `lacks`.
pub(crate) fn lacking(lacks: &[Capability]) -> Choice {
    Choice {
        mode: "ebpf",
        layers: vec!["ebpf"],
        reason: "mode ebpf selects it".to_owned(),
        cause: Cause::Named,
        lacks: lacks.to_vec(),
        refused: vec![],
    }
}

/// The same by mode auto, which refused another one.
pub(crate) fn lacking_alone(lacks: &[Capability], refusal: &str) -> Choice {
    Choice {
        mode: "auto",
        reason: "the only one".to_owned(),
        cause: Cause::First,
        refused: vec![Refused {
            backend: "nftables",
            reason: refusal.to_owned(),
        }],
        ..lacking(lacks)
    }
}

/// eBPF over nftables, by mode auto.
pub(crate) fn layered() -> Choice {
    Choice {
        mode: "auto",
        layers: vec!["ebpf", "nftables"],
        reason: "both can be used".to_owned(),
        cause: Cause::First,
        ..lacking(&[])
    }
}
