//! Connections from outside that programs on devices translate: as JSON (`docs/conntrack-json.md`) and
//! for people.

mod census;
mod list;
#[cfg(test)]
mod tests;

use proxy_backend::connections::Ended;

pub use census::census;
pub use list::list;

/// What came of ending some, for people.
pub fn ended(ended: &Ended) -> String {
    let counted = |count: u64| match count {
        1 => "1 connection".to_owned(),
        many => format!("{many} connections"),
    };
    let removed = counted(ended.removed);
    match ended.came_back {
        0 => format!("ended {removed}\n"),
        left => format!(
            "ended {removed}\n{} came back with each packet; run this again\n",
            counted(left)
        ),
    }
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}
