//! What is printed. The `println` of the standard library panics when whoever reads goes away
//! (`| head`), in the middle of whatever runs; these say nothing more then, and the work goes on.

use std::{
    fmt::Arguments,
    io::{self, Write as _},
};

macro_rules! print {
    ($($text:tt)*) => { $crate::said::write(format_args!($($text)*)) };
}

macro_rules! println {
    ($($text:tt)*) => { $crate::said::line(format_args!($($text)*)) };
}

/// Prints `text`.
pub fn write(text: Arguments<'_>) {
    // There is nobody to tell.
    io::stdout().write_fmt(text).ok();
}

/// Prints `text` and the end of the line.
pub fn line(text: Arguments<'_>) {
    write(format_args!("{text}\n"));
}
