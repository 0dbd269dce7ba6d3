//! What the kernel made of a program: how much the verifier went through, the room that the program
//! takes on the stack, and what it does with a packet.

use std::{
    collections::BTreeSet,
    fs,
    os::fd::{AsRawFd as _, OwnedFd},
};

use anyhow::{Context as _, Result, anyhow, ensure};

use super::{OBJ_GET_INFO_BY_FD, PROG_GET_FD_BY_ID, PROG_LOAD, PROG_TEST_RUN, call, own, pair};

/// An open program.
#[derive(Debug)]
pub struct Program {
    fd: OwnedFd,
}

/// Bytes of `struct bpf_prog_info` that are asked for.
const INFO_BYTES: u32 = 128;

/// Room for what a program makes of a packet: it may get longer.
const MORE: usize = 256;

/// What a program did with a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// What it returned.
    pub verdict: i32,
    /// The packet afterwards.
    pub packet: Vec<u8>,
    /// Nanoseconds for a run, the mean of all.
    pub nanoseconds: u32,
}

/// An instruction of a program, as far as it matters here: `struct bpf_insn`.
#[derive(Debug, Clone, Copy)]
struct Instruction {
    code: u8,
    to: u8,
    from: u8,
    offset: i16,
    value: i32,
}

impl Program {
    /// The program with this id.
    pub fn of(id: u32) -> Result<Self> {
        let mut attribute = [0; 16];
        attribute[0] = pair(id, 0);
        let fd = call(PROG_GET_FD_BY_ID, &mut attribute).context("cannot open a program")?;
        Ok(Self { fd: own(fd) })
    }

    /// Those that a process has open.
    pub fn held_by(pid: i32) -> Result<Vec<Self>> {
        let directory = format!("/proc/{pid}/fdinfo");
        let mut held = Vec::new();
        for file in fs::read_dir(&directory).context(directory)? {
            // One that is closed meanwhile has no text.
            let text = fs::read_to_string(file?.path()).unwrap_or_default();
            let mut ids = text
                .lines()
                .filter_map(|line| line.strip_prefix("prog_id:"));
            // Links name their program, too.
            if !text.contains("link_id:")
                && let Some(id) = ids.next()
            {
                held.push(Self::of(id.trim().parse()?)?);
            }
        }
        Ok(held)
    }

    /// A program for devices that lets every packet pass (`TCX_NEXT`), to compare with; attached
    /// nowhere.
    pub fn passing() -> Result<Self> {
        const SCHED_CLS: u32 = 3;
        // r0 = -1; exit
        let code: [u64; 2] = [0xffff_ffff_0000_00b7, 0x95];
        let license = c"GPL";
        let mut attribute = [0; 16];
        attribute[0] = pair(SCHED_CLS, 2);
        attribute[1] = code.as_ptr() as u64;
        attribute[2] = license.as_ptr() as u64;
        let fd = call(PROG_LOAD, &mut attribute).context("cannot load a program")?;
        Ok(Self { fd: own(fd) })
    }

    /// What it is called, in at most 15 characters.
    pub fn name(&self) -> Result<String> {
        let mut info = [0; INFO_BYTES as usize / 4];
        self.info(&mut info)?;
        // After what `instructions` names: load_time (u64), created_by_uid, nr_map_ids, map_ids
        // (u64), name.
        let bytes = info[16..20].iter().flat_map(|word| word.to_ne_bytes());
        let name = bytes.take_while(|byte| *byte != 0).collect();
        String::from_utf8(name).context("the program's name is not text")
    }

    /// Has the kernel run it `times` times over a packet, each time over what the last time left. A
    /// packet of a device with Ethernet headers begins with one; it comes by the loopback device.
    pub fn run(&self, packet: &[u8], times: u32) -> Result<Ran> {
        let mut after = vec![0; packet.len() + MORE];
        // Of union bpf_attr, `test`: prog_fd, retval; data_size_in, data_size_out; data_in; data_out;
        // repeat, duration; …
        let mut attribute = [0; 16];
        attribute[0] = pair(self.fd.as_raw_fd().cast_unsigned(), 0);
        attribute[1] = pair(packet.len().try_into()?, after.len().try_into()?);
        attribute[2] = packet.as_ptr() as u64;
        attribute[3] = after.as_mut_ptr() as u64;
        attribute[4] = pair(times, 0);
        call(PROG_TEST_RUN, &mut attribute).context("the kernel does not run the program")?;
        let (_, verdict) = halves(attribute[0]);
        let (_, length) = halves(attribute[1]);
        let (_, nanoseconds) = halves(attribute[4]);
        after.truncate(length.try_into()?);
        Ok(Ran {
            verdict: verdict.cast_signed(),
            packet: after,
            nanoseconds,
        })
    }

    /// How many instructions the verifier went through (Linux 5.16).
    pub fn verified(&self) -> Result<u64> {
        let path = format!("/proc/self/fdinfo/{}", self.fd.as_raw_fd());
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let mut lines = text.lines();
        lines
            .find_map(|line| line.strip_prefix("verified_insns:")?.trim().parse().ok())
            .ok_or_else(|| anyhow!("{path} does not tell what was verified"))
    }

    /// Bytes on the stack, of the program and the functions in it that call each other most deeply,
    /// as the kernel counts them: of 512.
    pub fn stack(&self) -> Result<u32> {
        let code = self.instructions()?;
        ensure!(!code.is_empty(), "the kernel does not show the program");
        Ok(deepest(&code, 0))
    }

    /// The program as the kernel runs it, without what the verifier ruled out.
    fn instructions(&self) -> Result<Vec<Instruction>> {
        // struct bpf_prog_info: type, id, tag (u64), jited_prog_len, xlated_prog_len,
        // jited_prog_insns (u64), xlated_prog_insns (u64), …
        let mut info = [0; INFO_BYTES as usize / 4];
        self.info(&mut info)?;
        let length = info[5];
        let mut code = vec![0_u8; length as usize];
        info = [0; INFO_BYTES as usize / 4];
        info[5] = length;
        let at = (code.as_mut_ptr() as u64).to_ne_bytes();
        for (half, bytes) in info[8..10].iter_mut().zip(at.chunks(4)) {
            *half = u32::from_ne_bytes(bytes.try_into()?);
        }
        self.info(&mut info)?;
        let each = code.chunks_exact(8).map(|bytes| Instruction {
            code: bytes[0],
            to: bytes[1] & 0xf,
            from: bytes[1] >> 4,
            offset: i16::from_ne_bytes([bytes[2], bytes[3]]),
            value: i32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        });
        Ok(each.collect())
    }

    /// Asks the kernel about it: `info` is a `struct bpf_prog_info`.
    fn info(&self, info: &mut [u32; INFO_BYTES as usize / 4]) -> Result<()> {
        let mut attribute = [0; 16];
        attribute[0] = pair(self.fd.as_raw_fd().cast_unsigned(), INFO_BYTES);
        attribute[1] = info.as_mut_ptr() as u64;
        call(OBJ_GET_INFO_BY_FD, &mut attribute).context("cannot ask about a program")?;
        Ok(())
    }
}

/// The two u32 of a word of an attribute, in memory order.
fn halves(word: u64) -> (u32, u32) {
    let bytes = word.to_ne_bytes();
    let half = |at: usize| {
        let mut half = [0; 4];
        half.copy_from_slice(&bytes[at..at + 4]);
        u32::from_ne_bytes(half)
    };
    (half(0), half(4))
}

/// The register that holds the end of a function's room on the stack.
const FRAME: u8 = 10;

const CALL: u8 = 0x85;
const MOVE: u8 = 0xbf;
const ADD: u8 = 0x07;

/// What a call of a function of the program says in the place of a register.
const OF_PROGRAM: u8 = 1;

impl Instruction {
    /// Where the function begins that the instruction at `index` calls, if it does. Compiled by
    /// the kernel, the distance is in another field.
    fn calls(self, index: usize) -> Option<usize> {
        if self.code != CALL || self.from != OF_PROGRAM {
            return None;
        }
        let distance = if self.offset == 0 {
            self.value
        } else {
            self.offset.into()
        };
        (index + 1).checked_add_signed(distance.try_into().ok()?)
    }

    /// How far below the end of its function's room it reaches; `before` is the one before it.
    fn reaches(self, before: Option<Self>) -> u32 {
        let below = |distance: i32| distance.min(0).unsigned_abs();
        match self.code & 7 {
            // Loads and stores.
            1 if self.from == FRAME => below(self.offset.into()),
            2 | 3 if self.to == FRAME => below(self.offset.into()),
            // An address there: the end is copied, and the distance added.
            _ if self.code == ADD => match before {
                Some(before)
                    if before.code == MOVE && before.from == FRAME && before.to == self.to =>
                {
                    below(self.value)
                }
                _ => 0,
            },
            _ => 0,
        }
    }
}

/// What the function that begins at `begin` needs, with the deepest of those that it calls.
fn deepest(code: &[Instruction], begin: usize) -> u32 {
    let all = code.iter().enumerate();
    let begins: BTreeSet<usize> = all.filter_map(|(at, one)| one.calls(at)).collect();
    let end = begins.range(begin + 1..).next().copied();
    let body = begin..end.unwrap_or(code.len());
    let (mut own, mut below) = (0, 0);
    for at in body {
        let before = at.checked_sub(1).map(|at| code[at]);
        own = own.max(code[at].reaches(before));
        if let Some(function) = code[at].calls(at) {
            below = below.max(deepest(code, function));
        }
    }
    // The kernel counts no less than this for each.
    own.max(1).next_multiple_of(32) + below
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn instruction(code: u8, to: u8, from: u8, offset: i16, value: i32) -> Instruction {
        Instruction {
            code,
            to,
            from,
            offset,
            value,
        }
    }

    #[test]
    fn room_is_that_of_the_deepest_calls() {
        const EXIT: Instruction = instruction(0x95, 0, 0, 0, 0);
        let code = [
            // r2 = r10; r2 += -40; the function at 5, as compiled; the one at 7; exit.
            instruction(MOVE, 2, FRAME, 0, 0),
            instruction(ADD, 2, 0, 0, -40),
            instruction(CALL, 0, OF_PROGRAM, 2, 1),
            instruction(CALL, 0, OF_PROGRAM, 0, 3),
            EXIT,
            // *(r10 - 8) = r1; exit.
            instruction(0x7b, FRAME, 1, -8, 0),
            EXIT,
            // r1 = *(r10 - 104); a helper; r3 += -400, which is no address; exit.
            instruction(0x79, 1, FRAME, -104, 0),
            instruction(CALL, 0, 0, 0, 14),
            instruction(ADD, 3, 0, 0, -400),
            EXIT,
        ];
        assert_eq!(deepest(&code, 5), 32);
        assert_eq!(deepest(&code, 7), 128);
        assert_eq!(deepest(&code, 0), 64 + 128);
    }
}
