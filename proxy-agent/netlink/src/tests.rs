//! Messages that are written and read back, and such as are damaged.

use crate::{
    attributes::Read,
    message::{Head, Messages, attributes},
};

const HEAD: Head = Head {
    kind: 7,
    flags: 1,
    family: 2,
    resource: 10,
};

#[test]
fn what_is_written_reads_back() {
    let mut messages = Messages::default();
    messages.add(HEAD, |_| {});
    let sequence = messages.add(HEAD, |attributes| {
        attributes.text(1, "culvert");
        attributes.nested(2, |inner| {
            inner.number(1, 80);
            inner.bytes(2, &[1, 2, 3]);
        });
    });
    let (kind, attributes) = messages.find(sequence).unwrap();
    assert_eq!(kind, 7);
    let read = Read(attributes);
    assert_eq!(read.text(1), Some("culvert"));
    assert_eq!(read.nested(2).number(1), Some(80));
    assert_eq!(read.nested(2).get(2), Some(&[1, 2, 3][..]));
    assert_eq!(read.get(3), None);
    assert!(messages.find(3).is_none());
}

#[test]
fn damaged_messages_end_and_do_no_harm() {
    let mut messages = Messages::default();
    messages.add(HEAD, |attributes| {
        attributes.nested(1, |inner| inner.text(1, "abc"));
    });
    let bytes = messages.as_bytes();
    for cut in 0..bytes.len() {
        let mut damaged = bytes[..cut].to_vec();
        if let Some(first) = damaged.first_mut() {
            *first = u8::try_from(cut).unwrap();
        }
        for message in crate::message::messages(&damaged).map_while(Result::ok) {
            let inner = Read(attributes(&message)).nested(1);
            assert!(inner.each().count() <= 1);
        }
    }
}
