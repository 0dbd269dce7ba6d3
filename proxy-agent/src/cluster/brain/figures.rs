//! How another brain is heard that is the source, as figures.

use proxy_model::{Figure, FigureKind};

use super::Contact;

/// Everything, zeros too.
pub fn figures(contact: &Contact) -> Vec<Figure> {
    let figure = |name, kind, help, value| Figure {
        name,
        kind,
        help,
        labels: Vec::new(),
        value,
    };
    let connected = if contact.is_connected() { 1.0 } else { 0.0 };
    vec![
        figure(
            "culvert_brain_connected",
            FigureKind::Gauge,
            "1 while the brain can be heard",
            connected,
        ),
        figure(
            "culvert_brain_losses_total",
            FigureKind::Counter,
            "How often the brain could not be heard any more, or at first",
            Figure::exact(contact.losses()),
        ),
        figure(
            "culvert_brain_stale_seconds",
            FigureKind::Gauge,
            "For how long the brain cannot be heard and the state is stale; 0 while it can",
            contact.stale_for().as_secs_f64(),
        ),
    ]
}
