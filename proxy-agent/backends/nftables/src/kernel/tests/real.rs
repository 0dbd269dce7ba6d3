//! The kernel in memory beside the real one: both get every request, and must say the same.

use std::{collections::BTreeSet, io, ops::ControlFlow, thread};

use nix::{
    sched::{CloneFlags, unshare},
    unistd::geteuid,
};
use proxy_model::Backend as _;
use proxy_netlink::{
    attributes::Read,
    message::{Messages, NLM_F_ACK, NLM_F_DUMP, NetlinkBuffer, attributes, end, messages},
    nf_tables as abi,
};

use super::{agent_over, history, recording::Kernel, sync};
use crate::{
    kernel::wire::{NetfilterSocket, Take, Wire},
    tests::walk::Step,
};

/// What was answered: the number of the message, and all of it that the backend reads.
type Said = BTreeSet<(u32, String)>;

#[derive(Debug)]
struct Both {
    real: NetfilterSocket,
    memory: Kernel,
}

impl Wire for Both {
    fn open(&mut self) -> io::Result<()> {
        self.real.open()
    }

    fn exchange(&mut self, request: &Messages, take: &mut Take<'_>) -> io::Result<()> {
        let of_real = said(&mut self.real, request);
        let asked = Asked::of(request);
        let mut of_memory = Said::new();
        let came = self.memory.exchange(request, &mut |number, message| {
            asked.note(&mut of_memory, number, message);
            take(number, message)
        });
        let only = |one: &Said, other: &Said| one.difference(other).cloned().collect::<Vec<_>>();
        assert!(
            of_real == of_memory,
            "{asked:?}: only the real one: {:?}; only the one in memory: {:?}",
            only(&of_real, &of_memory),
            only(&of_memory, &of_real),
        );
        came
    }

    fn close(&mut self) {
        self.real.close();
    }
}

/// What a request asks for, as far as it decides which answer is the last.
#[derive(Debug, Clone, Copy)]
struct Asked {
    kind: u16,
    is_dump: bool,
    /// The message that is confirmed, if one is.
    confirmed: Option<u32>,
}

impl Asked {
    fn of(request: &Messages) -> Self {
        let all = || messages(request.as_bytes()).map(|one| one.expect("it was written here"));
        let first = all().next().expect("a request has a message");
        let confirmed = all().filter(|one| one.flags() & NLM_F_ACK != 0);
        Self {
            kind: first.message_type(),
            is_dump: first.flags() & NLM_F_DUMP == NLM_F_DUMP,
            confirmed: confirmed.map(|one| one.sequence_number()).last(),
        }
    }

    /// Adds an answer to `said`. Returns whether it is the last.
    fn note(self, said: &mut Said, number: u32, message: &NetlinkBuffer<&[u8]>) -> bool {
        let Some(ended) = end(message).expect("an answer is whole") else {
            let object = Read(attributes(message));
            said.extend(self.read(object).into_iter().map(|one| (number, one)));
            return !self.is_dump && self.confirmed.is_none();
        };
        let errno = ended.err().and_then(|error| error.raw_os_error());
        said.insert((number, format!("{errno:?}")));
        // Of a batch that is not taken at all, the begin is answered.
        self.is_dump || self.confirmed == Some(number) || (errno.is_some() && number == 1)
    }

    /// What the backend reads of an object.
    fn read(self, object: Read<'_>) -> Vec<String> {
        if self.kind & 0xff == abi::NFT_MSG_GETSETELEM {
            let list = object.nested(abi::NFTA_SET_ELEM_LIST_ELEMENTS);
            let elements = list.each().map(|(_, element)| {
                let element = Read(element);
                let key = element.nested(abi::NFTA_SET_ELEM_KEY);
                let flags = element.number(abi::NFTA_SET_ELEM_FLAGS).unwrap_or(0);
                let data = element.nested(abi::NFTA_SET_ELEM_DATA);
                let verdict = data.nested(abi::NFTA_DATA_VERDICT);
                let chain = verdict.text(abi::NFTA_VERDICT_CHAIN);
                let value = data.get(abi::NFTA_DATA_VALUE);
                format!("{key:?} {flags} {value:?} {chain:?}")
            });
            return elements.collect();
        }
        let read: &[u16] = match self.kind & 0xff {
            abi::NFT_MSG_GETTABLE => &[abi::NFTA_TABLE_NAME, abi::NFTA_TABLE_FLAGS],
            abi::NFT_MSG_GETCHAIN => &[
                abi::NFTA_CHAIN_NAME,
                abi::NFTA_CHAIN_TYPE,
                abi::NFTA_CHAIN_USE,
            ],
            abi::NFT_MSG_GETRULE => &[abi::NFTA_RULE_CHAIN, abi::NFTA_RULE_USERDATA],
            abi::NFT_MSG_GETSET => &[
                abi::NFTA_SET_NAME,
                abi::NFTA_SET_FLAGS,
                abi::NFTA_SET_KEY_LEN,
                abi::NFTA_SET_DATA_TYPE,
                abi::NFTA_SET_DATA_LEN,
            ],
            _ => &[abi::NFTA_GEN_ID],
        };
        let of_object = read.iter().map(|kind| (kind, object.get(*kind)));
        vec![format!("{:?}", of_object.collect::<Vec<_>>())]
    }
}

/// What `wire` says to `request`.
fn said(wire: &mut impl Wire, request: &Messages) -> Said {
    let asked = Asked::of(request);
    let mut said = Said::new();
    let came = wire.exchange(request, &mut |number, message| {
        if asked.note(&mut said, number, message) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    came.expect("the kernel answers");
    said
}

#[test]
fn the_kernel_in_memory_says_what_the_real_one_says() {
    if !geteuid().is_root() {
        eprintln!("SKIPPED: a network namespace takes root");
        return;
    }
    for histories in 0..8 {
        let walked = thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
            let memory = Kernel::default();
            let mut real = NetfilterSocket::with_room(1 << 20);
            real.open().expect("a kernel with nf_tables");
            memory.begin_at(super::generation(&mut real));
            let both = Both {
                real,
                memory: memory.clone(),
            };
            let mut agent = agent_over(both, &memory);
            let mut before = None;
            for Step(now) in &history(5 * (histories + 1))[5 * histories..] {
                sync(&memory, &mut agent, before, now, false).expect("nothing fails");
                assert_eq!(agent.differences(now), Ok(Vec::new()));
                agent.tend(now);
                before = Some(now);
            }
        });
        walked.join().expect("both say the same");
    }
}
