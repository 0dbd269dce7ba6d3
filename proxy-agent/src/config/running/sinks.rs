//! Where the flags want the state to go besides the backend.

use std::path::Path;

use crate::{
    config::cli::SinkArgs,
    sinks::file::{Destination, may_replace},
};

/// The file that is to hold the state, if one is.
pub(super) fn output(args: &SinkArgs, mistakes: &mut Vec<String>) -> Option<Destination> {
    let path = args.output_file.as_deref()?;
    if path == Path::new("-") {
        return Some(Destination::Stdout);
    }
    let mut mistake = |text: &str| {
        mistakes.push(format!("--output-file {}: {text}", path.display()));
    };
    if path.file_name().is_none() {
        mistake("must name a file");
    } else if let Err(reason) = may_replace(path) {
        mistake(&reason.to_string());
    }
    Some(Destination::File(path.to_owned()))
}
