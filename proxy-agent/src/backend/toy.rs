//! Backends that program nothing, for tests: what is said of every backend must be said of these.

use std::net::SocketAddr;

use proxy_backend::{
    BackendKind, Descriptor, Flag, FlagMistake, Host, OpenError, Page, Place, Probe, Requirement,
    Retired, Settings, Surroundings, Takes,
};
use proxy_model::{
    Backend, Capability, ChangeSet, Figure, FigureKind, NodeState, Protocol, SyncError, SyncReport,
};

/// One that every host can have, for packets.
pub(crate) const TOY: BackendKind = BackendKind::of(&Toy {
    name: "toy",
    place: Place::Packets,
    usable: true,
});

/// One that every host can have, above.
pub(crate) const KITE: BackendKind = BackendKind::of(&Toy {
    name: "kite",
    place: Place::Above,
    usable: true,
});

/// One that no host can have, for packets.
pub(crate) const BROKEN: BackendKind = BackendKind::of(&Toy {
    name: "broken",
    place: Place::Packets,
    usable: false,
});

/// A backend that programs nothing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Toy {
    name: &'static str,
    place: Place,
    usable: bool,
}

/// What one above cannot do.
pub(crate) const LACKS_ABOVE: &[Capability] = &[Capability::Sctp, Capability::ExternalTraffic];

/// What one for packets cannot do.
pub(crate) const LACKS: &[Capability] = &[Capability::Sctp, Capability::Affinity];

impl Descriptor for Toy {
    fn name(&self) -> &'static str {
        self.name
    }

    fn programs(&self) -> &'static str {
        "wooden bricks: they meet what falls on them"
    }

    fn place(&self) -> Place {
        self.place
    }

    fn lacks(&self) -> &'static [Capability] {
        match self.place {
            Place::Above => LACKS_ABOVE,
            Place::Packets => LACKS,
        }
    }

    fn render(&self, state: &NodeState, _: &Settings, _: bool) -> String {
        format!("{} bricks\n", state.services.len())
    }

    fn flags(&self) -> &'static [Flag] {
        &[
            Flag {
                name: "toy-colour",
                takes: Takes::Texts("COLOUR"),
                help: "Colour of the bricks",
                check_help: Some("Colour that the bricks would have"),
                field: None,
            },
            Flag {
                name: "toy-striped",
                takes: Takes::Switch,
                help: "Whether they have stripes",
                check_help: None,
                field: Some("culvert.toyStriped"),
            },
        ]
    }

    fn check(&self, given: &proxy_backend::Given, mistakes: &mut Vec<FlagMistake>) {
        if given.texts("toy-colour").any(|colour| colour == "plaid") {
            mistakes.push(FlagMistake {
                flag: "toy-colour",
                value: "plaid".to_owned(),
                why: "no colour; choose another one".to_owned(),
            });
        }
    }

    fn figures(&self) -> Vec<Figure> {
        vec![Figure {
            name: "bricks",
            help: "Bricks that lie about.",
            kind: FigureKind::Gauge,
            labels: vec![],
            value: 0.0,
        }]
    }

    fn page(&self) -> Option<Page> {
        None
    }

    fn host(&self) -> Option<&'static dyn Host> {
        Some(if self.usable {
            &Room(true)
        } else {
            &Room(false)
        })
    }
}

/// Where it is, or is not, at home.
#[derive(Debug)]
struct Room(bool);

impl Host for Room {
    fn probe(&self, _: &Settings) -> Probe {
        Probe {
            requirements: vec![Requirement {
                name: "floor",
                required: true,
                met: self.0,
                found: "wood".to_owned(),
                reason: "bricks fall",
                remedy: None,
            }],
            lacks: LACKS.to_vec(),
        }
    }

    fn open(&self, _: &Settings, _: &Surroundings) -> Result<Box<dyn Backend>, OpenError> {
        if self.0 {
            Ok(Box::new(Bricks))
        } else {
            Err(OpenError::Host("no floor".to_owned()))
        }
    }

    fn is_programmed(&self, _: &Settings, _: SocketAddr, _: Protocol) -> bool {
        false
    }

    fn left_something(&self, _: &Settings) -> bool {
        false
    }

    fn retire(&self, _: &Settings) -> Result<Retired, OpenError> {
        Ok(Retired::Nothing)
    }

    fn cleanup(&self, _: &Settings) -> Result<String, OpenError> {
        Ok("picked up the bricks\n".to_owned())
    }
}

/// The same, open.
struct Bricks;

impl Backend for Bricks {
    fn name(&self) -> &'static str {
        TOY.name()
    }

    fn lacks(&self) -> &'static [Capability] {
        LACKS
    }

    fn sync(&mut self, _: &NodeState, _: &ChangeSet) -> Result<SyncReport, SyncError> {
        Ok(SyncReport::default())
    }
}
