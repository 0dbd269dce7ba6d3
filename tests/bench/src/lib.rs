//! `cargo xtask bench`: what a Service costs, measured side by side in one run.
//!
//! ```text
//! paired, program_time ──> rig (world, two agents, sender) ──> worker, task (in the world)
//! held ──> agents with other maps, the rig's sender
//! sync, api ──> agents of their own               figures ──> table, JSON, plots
//! node_api ──> orders (a brain, and its clients)
//! backends ──> api (an agent for each backend)    connect (one process for each place)
//! outside ──> a world for each way in, the rig's sender
//! ```

mod api;
mod backends;
pub mod clusters;
mod connect;
mod events;
mod figures;
mod held;
mod kernel_time;
mod node_api;
mod orders;
mod outside;
mod paired;
mod plots;
mod program_time;
mod rig;
mod sizes;
mod sync;
mod table;
mod task;
mod usage;
mod worker;

use std::{
    fs,
    io::{self, IsTerminal as _, Write as _},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use clap::{CommandFactory as _, Parser, Subcommand, ValueEnum, error::ErrorKind};

use figures::{Collected, Figure};
use plots::Folder;
use proxy_harness::{
    World,
    interrupt::Interrupts,
    requires::{self, PRIVILEGED},
};
use rig::Rig;
use sizes::{SMALL, Size};
use worker::Listening;

/// What a Service costs: everything side by side, with median and spread.
#[derive(Debug, Parser)]
#[command(
    name = "bench",
    bin_name = "cargo xtask bench",
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    after_help = EXIT_CODES
)]
pub struct Options {
    /// Which benches to run [default: all]
    #[arg(value_enum, value_name = "NAME")]
    names: Vec<Name>,

    /// Write the figures to this file too, as a JSON list
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Draw charts of `backends` into this directory too, as SVG
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,

    /// Measure nothing, and draw the charts of what an earlier run wrote with --json
    #[arg(long, value_name = "FILE", requires = "plot",
          conflicts_with_all = ["names", "json", "runs", "quick"])]
    from: Option<PathBuf>,

    /// How many runs the median is taken of
    #[arg(long, value_name = "N", default_value_t = 15,
          value_parser = runs)]
    runs: usize,

    /// Few runs on small clusters: enough to see that it works, too few for figures to rely on
    #[arg(long, conflicts_with = "runs")]
    quick: bool,

    #[command(subcommand)]
    part: Option<Part>,
}

const EXIT_CODES: &str = "\
Exit codes:
  0    measured, or drawn; goals that are not met are told, and are no failure
  1    something failed
  2    bad usage
  3    this host or this user cannot: no root, no BPF, no cgroup v2, no ip command
  130  stopped by Ctrl-C or SIGTERM; nothing is left behind";

/// A bench.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Name {
    /// TCP connect and close through a ClusterIP, against the endpoint directly
    TcpConnect,
    /// UDP request and response, on sockets used in four ways
    UdpRequest,
    /// Time of each kernel program
    ProgramTime,
    /// A connect while many connections are open, by the size of the map that remembers them
    ConnectionsHeld,
    /// Time and memory of the agent
    Sync,
    /// An agent that follows an API server: latency of changes, cold start, memory, CPU
    ApiServer,
    /// Backends in other processes: one change to 100 clients, the whole state, against in process
    NodeApi,
    /// The layers, and each backend alone: full sync, one change, memory, CPU, traffic against a host
    /// without a proxy
    Backends,
    /// A NodePort for a host outside: programs on devices, nftables, DNAT by hand, plain forwarding
    Outside,
    /// The same to endpoints that see the node: in a pod here, and on another node
    OutsideMasqueraded,
    /// How soon a new NodePort answers a host outside
    NewNodePort,
    /// How soon a NodePort answers on a device that has just come, and on an address
    Additions,
    /// Time of the programs on devices for one packet, of a flow that is open, and of none
    PacketTime,
}

/// What this program is when it starts itself inside the world.
#[derive(Debug, Subcommand)]
enum Part {
    /// Sends what it is told to on stdin
    #[command(hide = true)]
    Send,
    /// Dials what it is told to on stdin until another server answers
    #[command(hide = true)]
    Dial,
    /// Connects again and again for a moment, and says how long it took
    #[command(hide = true)]
    Connect {
        #[arg(long)]
        to: SocketAddr,
        #[arg(long)]
        milliseconds: u64,
    },
    /// Answers each connection with the port it came to
    #[command(hide = true)]
    NameYourselves {
        #[arg(long)]
        at: Vec<SocketAddr>,
    },
    /// Publishes what it is told to on stdin
    #[command(hide = true)]
    Brain {
        #[arg(long)]
        socket: PathBuf,
    },
    /// Follows a brain as it is told to on stdin
    #[command(hide = true)]
    Clients {
        #[arg(long)]
        socket: PathBuf,
    },
    /// Answers
    #[command(hide = true)]
    Answer {
        #[arg(long)]
        tcp: Vec<SocketAddr>,
        #[arg(long)]
        udp: Vec<SocketAddr>,
        #[arg(long)]
        sink: Vec<SocketAddr>,
        #[arg(long)]
        hold: Vec<SocketAddr>,
    },
}

fn runs(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(runs) if (1..=1000).contains(&runs) => Ok(runs),
        _ => Err("a number from 1 to 1000 is wanted".to_owned()),
    }
}

/// Runs of each bench with `--quick`.
const QUICK_RUNS: usize = 3;
/// Agents that are started for each figure of `sync`; one with `--quick`.
const STARTS: usize = 3;

/// Runs the benches.
pub fn main(options: &Options) -> ExitCode {
    let outcome = match &options.part {
        Some(Part::Send) => worker::send(),
        Some(Part::Dial) => api::dial::dial(),
        Some(Part::Connect { to, milliseconds }) => {
            connect::connect(*to, Duration::from_millis(*milliseconds))
        }
        Some(Part::NameYourselves { at }) => api::dial::name_yourselves(at),
        Some(Part::Brain { socket }) => node_api::brain::brain(socket),
        Some(Part::Clients { socket }) => node_api::clients::clients(socket.clone()),
        Some(Part::Answer {
            tcp,
            udp,
            sink,
            hold,
        }) => worker::answer(Listening {
            tcp,
            udp,
            sinks: sink,
            holding: hold,
        }),
        None => match (&options.from, &options.plot) {
            (Some(file), Some(folder)) => plots::from_file(file, folder),
            _ => return run_if_possible(options),
        },
    };
    ended(outcome)
}

impl Options {
    /// Whether this bench is among those to run.
    fn wants(&self, name: Name) -> bool {
        self.names.is_empty() || self.names.contains(&name)
    }

    /// What is wrong with them that their parser does not see.
    fn misused(&self) -> Option<clap::Error> {
        let charts_of_nothing = self.plot.is_some() && !self.wants(Name::Backends);
        charts_of_nothing.then(|| {
            let text = "--plot DIR draws what `backends` measures, which is not among the benches \
                        to run: name it, too";
            Self::command().error(ErrorKind::MissingRequiredArgument, text)
        })
    }
}

fn run_if_possible(options: &Options) -> ExitCode {
    if let Some(error) = options.misused() {
        // Nobody may be there to read it; the exit code says it, too.
        error.print().ok();
        return ExitCode::from(2);
    }
    if let Some((_, reason)) = requires::unmet(PRIVILEGED) {
        eprintln!("error: the bench cannot run here: {reason}");
        return ExitCode::from(3);
    }
    let interrupts = match Interrupts::hold_back() {
        Ok(interrupts) => interrupts,
        Err(error) => return ended(Err(error)),
    };
    let session = Session {
        runs: if options.quick {
            QUICK_RUNS
        } else {
            options.runs
        },
        starts: if options.quick { 1 } else { STARTS },
        quick: options.quick,
        sizes: if options.quick {
            sizes::QUICK
        } else {
            sizes::SIZES
        },
        interrupts,
        live: io::stderr().is_terminal(),
    };
    let outcome = run(&session, options);
    // Whatever failed after a signal may have failed because of it.
    if outcome.is_err()
        && let Some(signal) = session.interrupts.arrived()
    {
        eprintln!("stopped by {signal}");
        return ExitCode::from(130);
    }
    ended(outcome)
}

fn ended(outcome: Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// One run of the program.
#[derive(Debug)]
struct Session {
    runs: usize,
    starts: usize,
    quick: bool,
    sizes: [Size; 3],
    interrupts: Interrupts,
    live: bool,
}

impl Session {
    /// The largest cluster.
    const fn large(&self) -> Size {
        self.sizes[2]
    }

    /// Says on stderr what is being done.
    fn progress(&self, what: &str) {
        // Nobody may be looking; the figures count.
        if self.live {
            write!(io::stderr(), "\r\x1b[K{what}").ok();
        } else {
            writeln!(io::stderr(), "{what}").ok();
        }
    }

    /// An error if the user has asked to stop.
    fn still_wanted(&self) -> Result<()> {
        match self.interrupts.arrived() {
            Some(signal) => bail!("stopped by {signal}"),
            None => Ok(()),
        }
    }
}

fn run(session: &Session, options: &Options) -> Result<()> {
    // Before anything is measured: a path that cannot be written to must not cost minutes.
    let json = options.json.as_deref().map(create).transpose()?;
    let folder = options.plot.as_deref().map(Folder::prepare).transpose()?;
    let began = Instant::now();
    let machine = machine();
    let figures = measure(session, options)?;
    session.progress("");
    if let Some(mut file) = json {
        serde_json::to_writer_pretty(&mut file, &figures)
            .map_err(io::Error::from)
            .and_then(|()| file.write_all(b"\n"))
            .context("cannot write the figures")?;
    }
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{}\n{machine}; {:.0} s",
        table::render(&figures),
        began.elapsed().as_secs_f64()
    )
    .context("cannot print the figures")?;
    // Last: the figures are there, whatever becomes of their charts.
    folder.map_or(Ok(()), |folder| folder.fill(&figures, &mut out))
}

/// A bench that needs the rig.
type Bench = fn(&Session, &mut Rig<'_>) -> Result<Collected>;

fn create(path: &Path) -> Result<fs::File> {
    fs::File::create(path).with_context(|| format!("cannot write {}", path.display()))
}

/// Runs the chosen benches, one after the other.
fn measure(session: &Session, options: &Options) -> Result<Vec<Figure>> {
    let wanted = |name| options.wants(name);
    let world = World::new()?;
    let mut figures = Vec::new();
    if [Name::TcpConnect, Name::UdpRequest, Name::ProgramTime]
        .into_iter()
        .any(wanted)
    {
        let large = session.large();
        session.progress(&format!(
            "starting two agents, with {SMALL} and {large} services"
        ));
        let mut rig = Rig::build(&world, large)?;
        let benches: [(Name, &'static str, Bench); 3] = [
            (Name::TcpConnect, "tcp-connect", paired::tcp),
            (Name::UdpRequest, "udp-request", paired::udp),
            (Name::ProgramTime, "program-time", program_time::measure),
        ];
        for (name, title, bench) in benches {
            if wanted(name) {
                figures.extend(bench(session, &mut rig)?.figures(title));
            }
        }
    }
    if wanted(Name::ConnectionsHeld) {
        // Whoever is here could not have the addresses of these endpoints as well.
        let world = World::new()?;
        figures.extend(held::measure(session, &world)?.figures("connections-held"));
    }
    if wanted(Name::Sync) {
        figures.extend(sync::measure(session, &world)?.figures("sync"));
    }
    if wanted(Name::ApiServer) {
        figures.extend(api::measure(session, &world)?.figures("api-server"));
    }
    if wanted(Name::NodeApi) {
        figures.extend(node_api::measure(session)?.figures("node-api"));
    }
    if wanted(Name::Backends) {
        figures.extend(backends::measure(session)?.figures("backends"));
    }
    if wanted(Name::Outside) {
        let places = [outside::Place::Here];
        figures.extend(outside::measure(session, &places)?.figures("outside"));
    }
    if wanted(Name::OutsideMasqueraded) {
        let places = [outside::Place::SeesTheNode, outside::Place::Elsewhere];
        figures.extend(outside::measure(session, &places)?.figures("outside-masqueraded"));
    }
    if wanted(Name::NewNodePort) {
        figures.extend(outside::created::measure(session)?.figures("new-node-port"));
    }
    if wanted(Name::Additions) {
        figures.extend(outside::additions::measure(session)?.figures("additions"));
    }
    if wanted(Name::PacketTime) {
        figures.extend(outside::packets::measure(session)?.figures("packet-time"));
    }
    Ok(figures)
}

/// What the figures were measured on.
fn machine() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpus = read("/proc/cpuinfo");
    let model = cpus
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown CPU", |(_, model)| model);
    let count = cpus
        .lines()
        .filter(|line| line.starts_with("processor"))
        .count();
    let load = read("/proc/loadavg");
    let load = load.split(' ').next().unwrap_or_default();
    format!(
        "Linux {}, {count} × {model}, load {load} at the start",
        read("/proc/sys/kernel/osrelease").trim()
    )
}
