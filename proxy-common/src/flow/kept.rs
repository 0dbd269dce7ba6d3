//! Records where they are kept, and where other CPUs write them, too.

use crate::{
    address::{self, Address},
    endpoint::Endpoint,
    shared::{Shared, fields},
};

use super::{Dialled, FLOWS_PER_SOCKET, Flows, Peer, Remembered, Translation, WORDS};

fields! {
    Translation {
        frontend_port: u16,
        endpoint_port: u16,
        endpoint_id: u32,
        check: u32,
    }
}

fields! {
    Peer {
        cookie: u64,
        translation: Translation,
        state: u32,
    }
}

fields! {
    Flows {
        last: u32,
        next: u32,
    }
}

/// The first words of the two addresses.
const FRONTEND: usize = core::mem::offset_of!(Translation, frontend) / size_of::<u32>();
const ENDPOINT: usize = core::mem::offset_of!(Translation, endpoint) / size_of::<u32>();

impl<'a> Shared<'a, Translation> {
    /// A word of the record.
    #[expect(unsafe_code, reason = "a record as what it is made of")]
    #[inline(always)]
    fn word(self, index: usize) -> Shared<'a, u32> {
        let words = self.pointer().cast::<u32>();
        // SAFETY: `Translation` is `WORDS` aligned words without padding, any bits of which are a
        // value.
        unsafe { Shared::part(words.add(index % WORDS)) }
    }

    /// A copy that no later write can change, so that what is used is what was checked.
    #[inline(always)]
    pub fn snapshot(self) -> Translation {
        let mut words = [0; WORDS];
        let mut index = 0;
        while index < WORDS {
            words[index] = self.word(index).load();
            index += 1;
        }
        bytemuck::cast(words)
    }

    /// Writes a record, word by word: until the last one, it holds for nobody.
    #[inline(always)]
    pub fn write(self, record: &Translation) {
        let words: [u32; WORDS] = bytemuck::cast(*record);
        let mut index = 0;
        while index < WORDS {
            self.word(index).store(words[index]);
            index += 1;
        }
    }

    /// Makes the record void, and its place free.
    #[inline(always)]
    pub fn void(self) {
        // The second alone could be undone by a race with a writer of the same record.
        self.endpoint_id().store(0);
        self.check().store(0);
    }

    /// Whether nothing is kept here.
    #[inline(always)]
    pub fn is_free(self) -> bool {
        self.endpoint_id().load() == 0
    }

    /// Whether the record leads to `endpoint`.
    #[inline(always)]
    pub fn leads_to(self, endpoint: &Address, port: u16) -> bool {
        self.endpoint_port().load() == port && self.has(ENDPOINT, endpoint)
    }

    /// Whether the record is of `frontend`.
    #[inline(always)]
    pub fn is_of(self, frontend: &Address, port: u16) -> bool {
        self.frontend_port().load() == port && self.has(FRONTEND, frontend)
    }

    /// Whether the four words from `first` on are `address`.
    #[inline(always)]
    fn has(self, first: usize, address: &Address) -> bool {
        let words = address::to_words(address);
        let mut differ = 0;
        let mut index = 0;
        while index < words.len() {
            differ |= self.word(first + index).load() ^ words[index];
            index += 1;
        }
        differ == 0
    }
}

// These are functions of their own in the programs, too: few sockets need them, and what they keep
// on the stack (512 bytes for all that is inlined) would stand there for every socket.
impl<'a> Shared<'a, Flows> {
    /// One of the records.
    #[expect(unsafe_code, reason = "an element of what must not be referred to")]
    #[inline(always)]
    fn flow(self, index: usize) -> Shared<'a, Translation> {
        // SAFETY: the record is live, nothing is read, and the index is one of the array's.
        unsafe { Shared::part(&raw mut (*self.pointer()).flows[index % FLOWS_PER_SOCKET]) }
    }

    /// The endpoint used for `frontend`.
    #[inline(never)]
    pub fn endpoint_of(self, frontend: &Address, port: u16, cookie: u64) -> Option<Endpoint> {
        let mut index = 0;
        while index < FLOWS_PER_SOCKET {
            let flow = self.flow(index);
            if flow.is_of(frontend, port) {
                let flow = flow.snapshot();
                if flow.is_of(frontend, port) && flow.holds_for(cookie) {
                    return Some(flow.endpoint());
                }
            }
            index += 1;
        }
        None
    }

    /// The frontend behind `endpoint`; the one used last if there are several.
    #[inline(never)]
    pub fn frontend_of(self, endpoint: &Address, port: u16, cookie: u64) -> Option<Dialled> {
        // One more than there are: the one used last comes first.
        let mut step = 0;
        while step <= FLOWS_PER_SOCKET {
            let index = if step == 0 {
                self.last().load() as usize
            } else {
                step
            };
            let flow = self.flow(index);
            if flow.leads_to(endpoint, port) {
                let flow = flow.snapshot();
                if flow.leads_to(endpoint, port) && flow.holds_for(cookie) {
                    return Some(flow.dialled());
                }
            }
            step += 1;
        }
        None
    }

    /// Keeps a sealed translation, as the one used last.
    #[inline(never)]
    pub fn remember(self, flow: &Translation) -> Remembered {
        let mut place = FLOWS_PER_SOCKET;
        let mut index = 0;
        while index < FLOWS_PER_SOCKET {
            if self.flow(index).is_of(&flow.frontend, flow.frontend_port) {
                place = index;
            }
            index += 1;
        }
        let mut remembered = Remembered::Kept;
        if place == FLOWS_PER_SOCKET {
            place = self.next().load() as usize % FLOWS_PER_SOCKET;
            self.next().store(place as u32 + 1);
            if !self.flow(place).is_free() {
                remembered = Remembered::Replaced;
            }
        }
        self.flow(place).write(flow);
        self.last().store(place as u32);
        remembered
    }

    /// Marks the record of `frontend` as the one used last.
    #[inline(never)]
    pub fn touch(self, frontend: &Address, port: u16) {
        let mut index = 0;
        while index < FLOWS_PER_SOCKET {
            if self.flow(index).is_of(frontend, port) {
                self.last().store(index as u32);
                return;
            }
            index += 1;
        }
    }

    /// Forgets every frontend behind `endpoint`.
    #[inline(never)]
    pub fn forget(self, endpoint: &Address, port: u16) {
        let mut index = 0;
        while index < FLOWS_PER_SOCKET {
            let flow = self.flow(index);
            if flow.leads_to(endpoint, port) {
                flow.void();
            }
            index += 1;
        }
    }
}
