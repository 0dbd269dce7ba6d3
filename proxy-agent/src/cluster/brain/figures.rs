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
            "1 while the brain is connected",
            connected,
        ),
        figure(
            "culvert_brain_losses_total",
            FigureKind::Counter,
            "How often the connection to the brain was lost, or could not be made at first",
            Figure::exact(contact.losses()),
        ),
        figure(
            "culvert_brain_stale_seconds",
            FigureKind::Gauge,
            "For how long the brain has been unreachable and the state stale; 0 while it is \
             connected",
            contact.stale_for().as_secs_f64(),
        ),
    ]
}
