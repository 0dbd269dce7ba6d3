//! What the verifier makes of each program: far from what kernels allow, and not much more than it
//! was. A kernel that refuses a program serves nothing, and which kernels there are in the world
//! nobody can try.

use std::{collections::BTreeMap, env, fmt::Write as _, fs, path::Path};

use proxy_common::names::SOCKET_PROGRAMS;
use proxy_tests::{
    Agent, AgentOptions, Shop,
    bpf::{Pinned, program::Program},
    requires::{self, Need, PRIVILEGED},
    scenario::BLESS_VARIABLE,
    shop::service,
};

const FILE: &str = "cluster.yaml";

/// Bytes on the stack, of the 512 that Linux allows a program with all that it calls.
const STACK: u32 = 480;

/// Instructions that the verifier goes through, of a million. One more branch where it cannot tell
/// ways apart, and it goes through fifty times as many: what it tells apart depends on the kernel.
const VERIFIED: u64 = 100_000;

/// Where it is written down.
const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/programs.txt");

const HEAD: &str = "\
# What the verifier of Linux 6.18 made of each program: instructions that it went through, and bytes
# on the stack with the functions that it calls. `cargo xtask test --bless load -- verified` renews
# it.
";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Made {
    verified: u64,
    stack: u32,
}

/// The table, by program.
fn written_down() -> BTreeMap<String, Made> {
    let text = fs::read_to_string(TABLE).unwrap_or_default();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let fields: Vec<_> = line.split_whitespace().collect();
            let [name, verified, stack] = fields[..] else {
                panic!("{TABLE}: not a line of it: {line:?}");
            };
            let made = Made {
                verified: verified.parse().unwrap(),
                stack: stack.parse().unwrap(),
            };
            (name.to_owned(), made)
        })
        .collect()
}

#[test]
fn programs_stay_within_what_kernels_allow() {
    if !requires::met("load", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let files = [(FILE, &*service(1, &[1]))];
    let agent = Agent::start(&shop.world, AgentOptions::default(), &files).unwrap();
    let links = agent.pins().path().join("links");
    let program = |name: &str| {
        let link = Pinned::open(&Path::new(&links).join(name)).unwrap();
        Program::of(link.program_id().unwrap()).unwrap()
    };
    for name in SOCKET_PROGRAMS {
        let stack = program(name).stack().unwrap();
        println!("{name}: {stack} bytes on the stack");
        assert!(stack <= STACK, "{name} takes {stack} bytes on the stack");
    }
    if !requires::met("load", &[Need::VerifiedInstructions]) {
        return;
    }
    let made = SOCKET_PROGRAMS.map(|name| {
        let program = program(name);
        let made = Made {
            verified: program.verified().unwrap(),
            stack: program.stack().unwrap(),
        };
        println!("{name}: {made:?}");
        (name, made)
    });
    if env::var_os(BLESS_VARIABLE).is_some() {
        let mut text = HEAD.to_owned();
        for (name, Made { verified, stack }) in made {
            writeln!(text, "{name:<14} {verified:>6} {stack:>4}").unwrap();
        }
        fs::write(TABLE, text).unwrap();
    }
    let table = written_down();
    for (name, made) in made {
        assert!(made.verified <= VERIFIED, "{name}: {made:?}");
        let before = table.get(name);
        let before = before.unwrap_or_else(|| panic!("{name} is not in {TABLE}"));
        // Compilers and kernels differ by some of it.
        assert!(
            made.verified <= before.verified * 3 / 2,
            "{name} has grown: the verifier went through {}, not {} instructions; if that is as \
             meant, write it down with `cargo xtask test --bless load -- verified`",
            made.verified,
            before.verified
        );
        assert!(
            made.stack <= before.stack + 64,
            "{name} has grown: {} bytes on the stack, not {}; if that is as meant, write it down \
             with `cargo xtask test --bless load -- verified`",
            made.stack,
            before.stack
        );
    }
    assert_eq!(
        table.len(),
        made.len(),
        "{TABLE} has programs that are gone"
    );
}
