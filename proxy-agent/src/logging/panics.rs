//! A panic, wherever it happens, is a line of the log like any other. What the standard library
//! would do instead is write plain text to standard error, and wait for whoever reads there.

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    panic::{PanicHookInfo, set_hook},
    thread,
};

/// From now on.
pub(super) fn to_the_log() {
    set_hook(Box::new(tell));
}

fn tell(panic: &PanicHookInfo<'_>) {
    let thread = thread::current();
    let location = panic.location().map(ToString::to_string);
    // `RUST_BACKTRACE` decides.
    let backtrace = Backtrace::capture();
    let backtrace =
        (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
    tracing::error!(
        reason = said(panic.payload()),
        location,
        thread = thread.name(),
        backtrace,
        text = "this is a defect of the agent: please report it with the log",
        "panicked"
    );
}

/// The words of a panic.
pub fn said(payload: &(dyn std::any::Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no reason given")
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn the_words_of_a_panic_are_found_in_either_form() {
        let words = |panic: fn()| {
            let payload = catch_unwind(panic).unwrap_err();
            said(&*payload).to_owned()
        };
        assert_eq!(words(|| panic!("plain")), "plain");
        assert_eq!(words(|| panic!("number {}", 1 + 1)), "number 2");
        assert_eq!(words(|| std::panic::panic_any(1_u8)), "no reason given");
    }
}
