//! One reading of the kernel's table of connections, entry by entry: no list of them is ever held.

use std::io;

use proxy_model::IpFamily;

use super::{
    ConntrackError, attempted,
    flow::{self, Flow, Identity},
    message::{self, ENTRY},
};
use proxy_netlink::{
    message::{answers, attributes, end, is_interrupted},
    netfilter::open,
    socket::Asked,
};

/// Which entries are of interest. Old kernels tell more.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wanted {
    /// Those of a protocol in a family.
    Protocol(IpFamily, u8),
    /// Those with a translated destination.
    Translated,
}

/// What is done with an entry.
type Visit<'a> = dyn FnMut(&Flow, Identity<'_>) -> Result<(), ConntrackError> + 'a;

/// Visits each entry. Whether that were all: false if the table changed so much that some may be
/// missing or told twice.
pub(super) fn each(
    wanted: Wanted,
    mut visit: impl FnMut(&Flow, Identity<'_>) -> Result<(), ConntrackError>,
) -> Result<bool, ConntrackError> {
    let asked = attempted("asking the kernel for its connections over netlink");
    let mut socket = open().map_err(&asked)?;
    let request = match wanted {
        Wanted::Protocol(family, protocol) => message::dump_protocol(family, protocol),
        Wanted::Translated => message::dump_translated(),
    };
    let sent = socket.send(request.as_bytes()).map_err(&asked)?;
    let mut whole = true;
    let mut datagram = Vec::new();
    loop {
        socket.receive(&mut datagram).map_err(&asked)?;
        match read(&datagram, sent, &mut whole, &mut visit)? {
            None => {}
            Some(Ok(())) => return Ok(whole),
            Some(Err(error)) if error.kind() == io::ErrorKind::Interrupted => return Ok(false),
            Some(Err(error)) => return Err(asked(error)),
        }
    }
}

/// Reads one datagram of a dump. `None`: more is to come.
fn read(
    datagram: &[u8],
    asked: Asked,
    whole: &mut bool,
    visit: &mut Visit<'_>,
) -> Result<Option<io::Result<()>>, ConntrackError> {
    for message in answers(datagram, asked) {
        let (_, message) = message?;
        *whole &= !is_interrupted(&message);
        if let Some(ended) = end(&message)? {
            return Ok(Some(ended));
        }
        if message.message_type() == ENTRY
            && let Some((flow, identity)) = flow::read(attributes(&message))?
        {
            visit(&flow, identity)?;
        }
    }
    Ok(None)
}
