//! qemu and its file system daemon: where they are, and their command lines.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use xtask::paths;

use super::kernels::Kernel;
use super::unpacked::Unpacked;

/// Memory of a guest, in MiB.
const MEMORY: u32 = 2048;

/// Where Debian puts the daemon, which is not meant for PATH: Debian 12's qemu, then the later
/// package of its own.
const VIRTIOFSD: [&str; 2] = ["/usr/lib/qemu/virtiofsd", "/usr/libexec/virtiofsd"];

/// A program, and the tree it was unpacked in if it is not installed.
pub(crate) struct Program {
    file: PathBuf,
    unpacked: Option<Unpacked>,
}

/// qemu: the one that is installed, or that in the cache.
pub(crate) fn emulator(cache: &Path) -> Option<Program> {
    const NAME: &str = "qemu-system-x86_64";
    let of_cache = || Unpacked::find(cache).and_then(|tree| executable_in(tree, "usr/bin", NAME));
    paths::find_on_path(NAME).map(installed).or_else(of_cache)
}

/// The daemon that shares host directories with a guest, likewise.
pub(crate) fn virtiofsd(cache: &Path) -> Option<Program> {
    let mut files = VIRTIOFSD.iter().map(PathBuf::from);
    let of_cache = || {
        let tree = Unpacked::find(cache)?;
        let mut dirs = VIRTIOFSD.iter().filter_map(|file| file.rsplit_once('/'));
        dirs.find_map(|(dir, name)| executable_in(tree.clone(), dir, name))
    };
    let found = files.find(|file| paths::is_executable(file));
    found.map(installed).or_else(of_cache)
}

fn installed(file: PathBuf) -> Program {
    Program {
        file,
        unpacked: None,
    }
}

fn executable_in(tree: Unpacked, dir: &str, name: &str) -> Option<Program> {
    let file = tree.file(dir).join(name);
    paths::is_executable(&file).then_some(Program {
        file,
        unpacked: Some(tree),
    })
}

/// A busybox that runs without any library, as it must before a root file system is there.
pub(crate) fn static_busybox() -> Option<PathBuf> {
    let file = paths::find_on_path("busybox")?;
    let bytes = std::fs::read(&file).ok()?;
    // A program that needs libraries names the loader that finds them.
    let names_a_loader = bytes
        .windows(8)
        .take(4096)
        .any(|window| window == b"/ld-linu");
    (!names_a_loader).then_some(file)
}

/// A command that dies with this process, `kill -9` included.
fn bound_to_us(program: &Program) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "--"])
        .arg(&program.file)
        .stdin(Stdio::null());
    if let Some(tree) = &program.unpacked {
        command.envs(tree.environment());
    }
    command
}

/// The daemon that serves `directory` on `socket`.
pub(super) fn share(daemon: &Program, directory: &Path, socket: &Path, cached: bool) -> Command {
    let mut command = bound_to_us(daemon);
    command
        .arg(format!("--socket-path={}", socket.display()))
        .args(["-o", &format!("source={}", directory.display())])
        .args(["-o", if cached { "cache=always" } else { "cache=none" }])
        .args(["-o", "sandbox=chroot", "-o", "readdirplus"]);
    command
}

/// What a guest consists of.
pub(super) struct Guest<'a> {
    /// Its kernel.
    pub(super) kernel: &'a Kernel,
    /// Its first root file system.
    pub(super) initramfs: &'a Path,
    /// Sockets of shared directories, with the tags they are mounted by.
    pub(super) shares: &'a [(&'a str, PathBuf)],
    /// Where the kernel's own messages go.
    pub(super) console: &'a Path,
    /// Processors.
    pub(super) cpus: usize,
    /// Whether one of them runs at a time.
    pub(super) take_turns: bool,
}

/// The qemu that runs `guest`, in software: a boot takes seconds either way, and hosts that are
/// virtual machines themselves often offer a `/dev/kvm` that then fails. Its processor is old,
/// because emulating newer instructions costs more than they save. Standard output is what the
/// guest prints.
pub(super) fn qemu(program: &Program, guest: &Guest<'_>) -> Command {
    let mut command = bound_to_us(program);
    for dir in program.unpacked.iter().flat_map(Unpacked::firmware) {
        command.arg("-L").arg(dir);
    }
    command
        .args([
            "-machine",
            "q35,memory-backend=ram",
            "-accel",
            if guest.take_turns {
                "tcg,thread=single"
            } else {
                "tcg,thread=multi"
            },
            "-cpu",
            "Nehalem",
        ])
        .args(["-smp", &guest.cpus.to_string(), "-m", &MEMORY.to_string()])
        // Shared directories need memory that the daemon can map as well.
        .args([
            "-object",
            &format!("memory-backend-memfd,id=ram,size={MEMORY}M,share=on"),
        ])
        .args(["-nodefaults", "-display", "none", "-no-reboot"])
        .args(["-serial", &format!("file:{}", guest.console.display())])
        .args([
            "-device",
            "virtio-serial-pci",
            "-chardev",
            "stdio,id=out,signal=off",
        ])
        .args(["-device", "virtconsole,chardev=out"])
        .args(["-object", "rng-random,id=random,filename=/dev/urandom"])
        .args(["-device", "virtio-rng-pci,rng=random"]);
    for (tag, socket) in guest.shares {
        command
            .args([
                "-chardev",
                &format!("socket,id={tag},path={}", socket.display()),
            ])
            .args([
                "-device",
                &format!("vhost-user-fs-pci,chardev={tag},tag={tag}"),
            ]);
    }
    let modules = guest.kernel.modules();
    let arguments = format!(
        "console=ttyS0 loglevel=4 edd=off panic=-1 mitigations=off random.trust_cpu=on \
         culvert.modules={}",
        modules.display()
    );
    command
        .arg("-kernel")
        .arg(guest.kernel.image())
        .arg("-initrd")
        .arg(guest.initramfs);
    command.args(["-append", &arguments]);
    command
}
