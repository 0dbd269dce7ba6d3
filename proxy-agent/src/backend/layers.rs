//! The layers of a mode as text, on no particular host.

use proxy_backend::{BackendKind, Place, Settings};
use proxy_model::NodeState;

use super::choice::{Mode, NoBackend, choose, name};

/// What the layers that `mode` asks for would program where every backend of `all` can be used, one
/// after the other. Pure.
pub fn render(
    mode: Mode,
    all: &[BackendKind],
    state: &NodeState,
    settings: &Settings,
) -> Result<String, NoBackend> {
    let chosen = choose(mode, all, |_| None)?;
    let layers = chosen.layers();
    if let [alone] = layers {
        return Ok(alone.render(state, settings, false));
    }
    let names: Vec<_> = layers.iter().map(|kind| kind.name()).collect();
    let settings = &under(layers, settings.clone());
    let mut text = format!("# {}\n", name(&names));
    for (index, kind) in layers.iter().enumerate() {
        let over = index + 1 < layers.len();
        text += &["\n# ", kind.name(), "\n\n"].concat();
        text += &kind.render(state, settings, over);
    }
    Ok(text)
}

/// The settings that these layers have beside each other.
pub fn under(layers: &[BackendKind], settings: Settings) -> Settings {
    let given = &settings.given;
    let above = layers.iter().filter(|kind| kind.place() == Place::Above);
    Settings {
        beneath: above.clone().next().is_some(),
        above: above
            .map(|kind| kind.translates(given))
            .max()
            .unwrap_or_default(),
        ..settings
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::toy::{KITE, TOY},
        *,
    };

    #[test]
    fn each_layer_is_rendered_in_its_turn() {
        let render = |mode| {
            let state = NodeState::default();
            render(mode, &[KITE, TOY], &state, &Settings::default()).unwrap()
        };
        let both = "# kite over toy\n\n# kite\n\n0 bricks\n\n# toy\n\n0 bricks\n";
        assert_eq!(render(Mode::Auto), both);
        assert_eq!(render(Mode::Only(KITE)), both);
        assert_eq!(render(Mode::Only(TOY)), "0 bricks\n");
    }
}
