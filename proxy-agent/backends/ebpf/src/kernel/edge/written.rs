//! What SETTINGS holds. Written by whoever learns something new: by the owner what a state says of the
//! node, before that state counts as in force, and by the follower whether the programs are to leave.

use aya::{
    Ebpf,
    maps::{Array, MapData, MapError},
};
use proxy_common::track::{LEAVING, Settings};

use super::{super::OpenError, settings};

/// The map, and what it holds.
pub struct Written {
    map: Array<MapData, Settings>,
    seed: u32,
    /// No connection begins any more.
    leaving: bool,
    /// Closed connections give way sooner.
    crowded: bool,
    held: Option<Settings>,
}

impl Written {
    /// The map of these programs, which nobody else writes from now on. Goes on with the seed of an
    /// earlier run: with another one a packet that is sent again could go to another endpoint.
    pub fn of(ebpf: &mut Ebpf) -> Result<Self, OpenError> {
        let map = ebpf.take_map("SETTINGS");
        let map = map.ok_or_else(|| OpenError::Other("no map SETTINGS".to_owned()))?;
        let map: Array<MapData, Settings> = map.try_into().map_err(|error| failed(&error))?;
        let earlier = map.get(&0, 0).map_or(0, |earlier| earlier.seed);
        Ok(Self {
            map,
            seed: if earlier == 0 {
                settings::seed()
            } else {
                earlier
            },
            leaving: false,
            crowded: false,
            held: None,
        })
    }

    /// Whether a connection may begin.
    pub fn set_leaving(&mut self, leaving: bool) {
        self.leaving = leaving;
    }

    /// Whether closed connections are to give way sooner, from the next write on.
    pub fn set_crowded(&mut self, crowded: bool) {
        self.crowded = crowded;
    }

    /// Whether they are to.
    pub fn is_crowded(&self) -> bool {
        self.crowded
    }

    /// Writes `wanted`, if that is something else than before.
    pub fn write(&mut self, wanted: &Settings) -> Result<(), OpenError> {
        let mut settings = Settings {
            seed: self.seed,
            ..*wanted
        };
        if self.leaving {
            settings.flags |= LEAVING;
        }
        if self.crowded {
            settings = settings::crowded(&settings);
        }
        if self.held == Some(settings) {
            return Ok(());
        }
        self.map
            .set(0, settings, 0)
            .map_err(|error| failed(&error))?;
        self.held = Some(settings);
        Ok(())
    }
}

fn failed(error: &MapError) -> OpenError {
    OpenError::Later(format!("writing map SETTINGS: {error}"))
}
