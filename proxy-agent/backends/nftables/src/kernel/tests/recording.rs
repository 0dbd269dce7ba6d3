//! A kernel in memory. It keeps what it held after each transaction, and fails or dies at the request that
//! it is told.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use proxy_netlink::{
    message::{Messages, NLM_F_ACK, messages},
    nf_tables as abi,
};

use super::{
    answers::{Answer, answers, ended},
    tables::{Tables, apply},
};
use crate::kernel::{
    after,
    wire::{Take, Wire},
};

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It is refused for this reason.
    Refused(i32),
    /// It is refused for the first reason, and all that come after it for the second.
    AllRefused(i32, i32),
    /// It is done, and its answers do not fit into the socket.
    Lost,
    /// What is read changes meanwhile.
    Interrupted,
    /// Another process empties all chains just before.
    Outrun,
    /// The agent is killed before it arrives.
    KilledBefore,
    /// The agent is killed once it is done.
    KilledAfter,
}

/// The kernel, shared with whoever looks at it.
#[derive(Debug, Clone, Default)]
pub struct Kernel(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    tables: Tables,
    generation: u32,
    /// The tables after each transaction.
    record: Vec<Tables>,
    /// How many requests there were.
    requests: usize,
    /// What becomes of the request with this number.
    fault: Option<(usize, Fault)>,
    /// The agent is gone.
    killed: bool,
    /// Another process has emptied all chains, and nothing was written since but what deletes leftovers.
    outrun: bool,
    /// A chain that cannot be deleted.
    held: Option<String>,
}

impl Kernel {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rules were changed so often before.
    pub fn begin_at(&self, generation: u32) {
        self.inner().generation = generation;
    }

    /// What it holds.
    pub fn tables(&self) -> Tables {
        self.inner().tables.clone()
    }

    /// What it held after each transaction since the last time that this was asked.
    pub fn record(&self) -> Vec<Tables> {
        std::mem::take(&mut self.inner().record)
    }

    /// How many requests there were.
    pub fn requests(&self) -> usize {
        self.inner().requests
    }

    /// Has this become of the request that comes after `requests` others.
    pub fn fail(&self, requests: usize, fault: Fault) {
        let mut inner = self.inner();
        inner.fault = Some((inner.requests + requests, fault));
    }

    /// Whether the agent was killed; the next one is not.
    pub fn was_killed(&self) -> bool {
        std::mem::take(&mut self.inner().killed)
    }

    /// Whether another process emptied all chains, and nothing was written since but what deletes leftovers.
    pub fn is_outrun(&self) -> bool {
        self.inner().outrun
    }

    /// Has the kernel refuse to delete the chain of this name, as old ones do for a while.
    pub fn hold(&self, chain: Option<String>) {
        self.inner().held = chain;
    }

    /// Another process changes the tables.
    pub fn edit(&self, edit: impl FnOnce(&mut Tables)) {
        let mut inner = self.inner();
        edit(&mut inner.tables);
        inner.generation = after(inner.generation);
    }
}

impl Wire for Kernel {
    fn open(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn exchange(&mut self, request: &Messages, take: &mut Take<'_>) -> io::Result<()> {
        let mut inner = self.inner();
        let number = inner.requests;
        inner.requests += 1;
        let fault = inner.fault.filter(|(at, fault)| {
            *at == number || *at < number && matches!(fault, Fault::AllRefused(..))
        });
        let fault = fault.map(|(at, fault)| match fault {
            Fault::AllRefused(first, _) if at == number => Fault::Refused(first),
            Fault::AllRefused(_, next) => Fault::Refused(next),
            fault => fault,
        });
        inner.killed |= fault == Some(Fault::KilledBefore);
        if inner.killed {
            return Err(io::ErrorKind::NotConnected.into());
        }
        if fault == Some(Fault::Outrun) {
            inner.flush();
        }
        let came = inner.answer(request, fault);
        inner.killed |= fault == Some(Fault::KilledAfter);
        drop(inner);
        if matches!(fault, Some(Fault::Lost | Fault::KilledAfter)) {
            return Err(io::Error::from_raw_os_error(libc::ENOBUFS));
        }
        for (number, bytes) in came {
            for message in messages(&bytes) {
                let message = message.map_err(io::Error::other)?;
                if take(number, &message).is_break() {
                    return Ok(());
                }
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    fn close(&mut self) {}
}

impl Inner {
    fn flush(&mut self) {
        let tables = self.tables.values_mut();
        for chain in tables.flat_map(|table| table.chains.values_mut()) {
            chain.rules.clear();
        }
        self.outrun = true;
        self.generation = after(self.generation);
    }

    fn answer(&mut self, request: &Messages, fault: Option<Fault>) -> Vec<Answer> {
        if let Some(Fault::Refused(errno)) = fault {
            return vec![(1, ended(errno))];
        }
        let first = messages(request.as_bytes()).find_map(Result::ok);
        let first = first.expect("a request has a message");
        if first.message_type() == abi::NFNL_MSG_BATCH_BEGIN {
            return self.transaction(request);
        }
        let interrupted = fault == Some(Fault::Interrupted);
        answers(&self.tables, self.generation, &first, interrupted)
    }

    /// All of a batch, or nothing.
    fn transaction(&mut self, batch: &Messages) -> Vec<Answer> {
        let mut tables = self.tables.clone();
        let mut answers = Vec::new();
        let (mut refused, mut written) = (false, false);
        for message in messages(batch.as_bytes()) {
            let message = message.expect("a batch is whole");
            let number = message.sequence_number();
            let result = match message.message_type() {
                abi::NFNL_MSG_BATCH_BEGIN => {
                    let begin = proxy_netlink::message::attributes(&message);
                    let generation =
                        proxy_netlink::attributes::Read(begin).number(abi::NFNL_BATCH_GENID);
                    if generation.is_some_and(|generation| generation != self.generation) {
                        return vec![(number, ended(libc::ERESTART))];
                    }
                    Ok(())
                }
                abi::NFNL_MSG_BATCH_END => Ok(()),
                _ => apply(&mut tables, &self.tables, self.held.as_deref(), &message),
            };
            refused |= result.is_err();
            written |= is_write(message.message_type());
            if let Err(errno) = result {
                answers.push((number, ended(errno)));
            } else if message.flags() & NLM_F_ACK != 0 {
                answers.push((number, ended(0)));
            }
        }
        if !refused {
            self.tables = tables;
            self.outrun &= !written;
            self.generation = after(self.generation);
            self.record.push(self.tables.clone());
        }
        answers
    }
}

/// Whether a message of this type is about what packets meet: leftovers are deleted without a look at
/// anything else.
fn is_write(kind: u16) -> bool {
    let of_batch = [abi::NFNL_MSG_BATCH_BEGIN, abi::NFNL_MSG_BATCH_END];
    let leftovers = [abi::NFT_MSG_DELCHAIN, abi::NFT_MSG_DELSET];
    !of_batch.contains(&kind) && !leftovers.contains(&(kind & 0xff))
}
