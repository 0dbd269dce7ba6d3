//! What suites, demo and commands use of the machine, and the package that each is in.
//!
//! One table, so that nothing is used that set-up does not install: `cargo xtask tidy` looks for
//! names of programs in the sources and wants each of them here ([`provider`]), and a test asks
//! dpkg whether the packages hold what the table says. Knows nothing of compilers for other
//! targets: those are looked for by what they can do, not by name.

#[cfg(test)]
use std::collections::BTreeSet;
use std::path::Path;

use xtask::paths;

use super::Needs;
use super::apt;

/// Something that is used and not ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Thing {
    /// A program on the PATH.
    Program(&'static str),
    /// A file, by its path on Debian.
    File(&'static str),
    /// The package as a whole, because what is used of it has no path that stays.
    Package,
}

/// Who sees to it that it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    /// Set-up, where this is needed.
    Plan(Needs),
    /// Set-up, together with compilers, virtual machines or wine, which it looks for in other ways.
    Toolchain,
    /// Debian: no installation is without it.
    Base,
    /// Who installed Rust, which asks for a C compiler, and got this repository by git.
    Reader,
}

/// A line of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Provision {
    /// What is used.
    pub(crate) thing: Thing,
    /// The Debian package that it is in; none for what rustup brings.
    pub(crate) package: &'static str,
    /// Who provides it.
    pub(crate) from: From,
}

/// What set-up says that packages are for.
pub(super) const PURPOSES: &[(Needs, &str)] = &[
    (Needs::NODES, "throw-away nodes"),
    (Needs::LOOKING, "looking around in the demo"),
    (Needs::NFT, "rules of nftables"),
    (Needs::IPTABLES, "rules of iptables"),
    (Needs::RULES, "suites with rules in the kernel"),
    (Needs::DISASSEMBLER, "reading the kernel object"),
    (Needs::PYTHON, "clients of the node API in Python"),
    (Needs::GUESTS, "virtual machines"),
    (Needs::FUZZER, "fuzzing"),
    (Needs::FRESH, "making a bare root"),
    (Needs::CHART, "what renders and checks the chart"),
];

const fn program(name: &'static str, package: &'static str, from: From) -> Provision {
    Provision {
        thing: Thing::Program(name),
        package,
        from,
    }
}

const fn iptables(name: &'static str) -> Provision {
    program(name, "iptables", From::Plan(Needs::IPTABLES))
}

const fn rules(name: &'static str, package: &'static str) -> Provision {
    program(name, package, From::Plan(Needs::RULES))
}

const fn guests(name: &'static str, package: &'static str) -> Provision {
    program(name, package, From::Plan(Needs::GUESTS))
}

const fn base(name: &'static str, package: &'static str) -> Provision {
    program(name, package, From::Base)
}

const fn reader(name: &'static str, package: &'static str) -> Provision {
    program(name, package, From::Reader)
}

const PYTHON: From = From::Plan(Needs::PYTHON);

/// The table.
pub(crate) const PROVISIONS: &[Provision] = &[
    program("ip", "iproute2", From::Plan(Needs::NODES)),
    program("tc", "iproute2", From::Plan(Needs::NODES)),
    program("bpftool", "bpftool", From::Plan(Needs::LOOKING)),
    program("curl", "curl", From::Plan(Needs::LOOKING)),
    program("nft", "nftables", From::Plan(Needs::NFT)),
    iptables("iptables-nft-save"),
    iptables("iptables-legacy-save"),
    iptables("iptables-nft-restore"),
    iptables("iptables-legacy-restore"),
    iptables("ip6tables-nft-restore"),
    iptables("ip6tables-legacy-restore"),
    iptables("iptables-nft"),
    iptables("iptables"),
    iptables("ip6tables"),
    rules("ipset", "ipset"),
    // What documents tell users to type.
    rules("sysctl", "procps"),
    program("protoc", "protobuf-compiler", PYTHON),
    program("grpc_python_plugin", "protobuf-compiler-grpc", PYTHON),
    Provision {
        // protoc's own messages, which the node API's import. The package of protoc only
        // recommends this one.
        thing: Thing::File("/usr/include/google/protobuf/timestamp.proto"),
        package: "libprotobuf-dev",
        from: PYTHON,
    },
    Provision {
        thing: Thing::Package,
        package: "python3-grpcio",
        from: PYTHON,
    },
    program("pip3", "python3-pip", From::Plan(Needs::CHART)),
    // The package of gRPC depends on it, and that of pip.
    program("python3", "python3-minimal", PYTHON),
    guests("qemu-system-x86_64", "qemu-system-x86"),
    guests("depmod", "kmod"),
    guests("modprobe", "kmod"),
    guests("xz", "xz-utils"),
    guests("ipvsadm", "ipvsadm"),
    guests("wg", "wireguard-tools"),
    program("busybox", "busybox-static", From::Toolchain),
    program("c++", "g++", From::Plan(Needs::FUZZER)),
    program("debootstrap", "debootstrap", From::Plan(Needs::FRESH)),
    program("llvm-objdump", "llvm", From::Plan(Needs::DISASSEMBLER)),
    program("wine64", "wine64", From::Toolchain),
    program(
        "x86_64-w64-mingw32-gcc",
        "gcc-mingw-w64-x86-64",
        From::Toolchain,
    ),
    program("musl-gcc", "musl-tools", From::Toolchain),
    program("x86_64-linux-musl-gcc", "musl-dev", From::Toolchain),
    program("bpf-linker", "", From::Toolchain),
    // Not installed, because it comes with a server that would be started: unpacked into the cache.
    program("promtool", "prometheus", From::Toolchain),
    program("helm", "", From::Toolchain),
    base("sh", "dash"),
    base("tar", "tar"),
    base("true", "coreutils"),
    base("false", "coreutils"),
    base("timeout", "coreutils"),
    base("cp", "coreutils"),
    base("rm", "coreutils"),
    base("sha256sum", "coreutils"),
    base("gzip", "gzip"),
    base("flock", "util-linux"),
    base("nsenter", "util-linux"),
    base("setpriv", "util-linux"),
    base("unshare", "util-linux"),
    base("dpkg-deb", "dpkg"),
    base("dpkg-query", "dpkg"),
    base("dpkg", "dpkg"),
    base("chroot", "coreutils"),
    // Not marked as essential, but each that dpkg unpacks has them, and set-up works with apt.
    base("mount", "mount"),
    base("umount", "mount"),
    base("apt-get", "apt"),
    base("apt-cache", "apt"),
    base("apt-config", "apt"),
    reader("git", "git"),
    reader("gcc", "gcc"),
    reader("ar", "binutils"),
    reader("readelf", "binutils"),
    reader("objcopy", "binutils"),
    reader("cargo", ""),
    reader("cargo-clippy", ""),
    reader("rustc", ""),
    reader("rustup", ""),
];

/// Packages that are missing, without which this need is not met.
pub(super) fn missing(need: Needs) -> Vec<String> {
    let mut packages: Vec<String> = Vec::new();
    for provision in wanted(need).filter(|provision| !is_there(provision)) {
        let package = provision.package.to_owned();
        if !packages.contains(&package) {
            packages.push(package);
        }
    }
    packages
}

/// What set-up sees to where these are the needs.
fn wanted(needs: Needs) -> impl Iterator<Item = &'static Provision> {
    PROVISIONS
        .iter()
        .filter(move |provision| match provision.from {
            From::Plan(need) => needs.has(need),
            _ => false,
        })
}

/// The packages that these needs come to on a bare machine, compilers and kernels aside.
#[cfg(test)]
pub(crate) fn packages(needs: Needs) -> BTreeSet<&'static str> {
    wanted(needs).map(|provision| provision.package).collect()
}

/// Where other systems have files and what their packages are called is not known: there, the test
/// that needs it says so.
fn is_there(provision: &Provision) -> bool {
    match provision.thing {
        Thing::Program(name) => paths::find_on_path(name).is_some(),
        Thing::File(path) => !apt::is_debian() || Path::new(path).is_file(),
        Thing::Package => !apt::is_debian() || apt::is_installed(provision.package),
    }
}

/// Who provides the program of this name, or one that is called as its package; `None` if the table
/// has neither.
pub(crate) fn provider(name: &str) -> Option<From> {
    let program =
        |provision: &&Provision| matches!(provision.thing, Thing::Program(known) if known == name);
    let package = |provision: &&Provision| provision.package == name;
    let found = PROVISIONS.iter().find(program);
    Some(found.or_else(|| PROVISIONS.iter().find(package))?.from)
}

/// Whether the table has a file whose path ends like this.
pub(crate) fn declared_file(end: &str) -> bool {
    PROVISIONS
        .iter()
        .any(|provision| matches!(provision.thing, Thing::File(path) if path.ends_with(end)))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::process::Command;

    use super::*;

    /// The files of an installed package; none if it is not installed.
    fn files_of(package: &str) -> Option<Vec<PathBuf>> {
        if !apt::is_debian() || !apt::is_installed(package) {
            return None;
        }
        let listed = Command::new("dpkg-query")
            .args(["--listfiles", package])
            .output()
            .unwrap();
        let text = String::from_utf8(listed.stdout).unwrap();
        Some(text.lines().map(PathBuf::from).collect())
    }

    /// A name on the PATH, and what it is a link to, and so on: Debian's alternatives.
    fn names_of(program: &str) -> Vec<PathBuf> {
        let mut names = vec![PathBuf::from(program)];
        let mut next = paths::find_on_path(program);
        while let Some(file) = next {
            next = file.read_link().ok().map(|to| file.with_file_name(to));
            names.push(file);
        }
        names
    }

    #[test]
    fn packages_hold_what_the_table_says() {
        for provision in PROVISIONS {
            let Some(files) = files_of(provision.package) else {
                continue;
            };
            let holds = match provision.thing {
                Thing::Program(name) => names_of(name).iter().any(|name| {
                    let name = name.file_name();
                    files.iter().any(|file| file.file_name() == name)
                }),
                Thing::File(path) => files.contains(&PathBuf::from(path)),
                Thing::Package => true,
            };
            assert!(
                holds || provision.from == From::Toolchain,
                "{provision:?}: the package that is installed has no such thing"
            );
        }
    }

    #[test]
    fn the_base_of_debian_is_its_own() {
        // What `debootstrap --variant=minbase` installs: essential packages, apt, and mount.
        for provision in PROVISIONS.iter().filter(|p| p.from == From::Base) {
            if files_of(provision.package).is_none()
                || ["apt", "mount"].contains(&provision.package)
            {
                continue;
            }
            let asked = Command::new("dpkg-query")
                .args(["--show", "--showformat=${Essential}", provision.package])
                .output()
                .unwrap();
            assert_eq!(asked.stdout, b"yes", "{provision:?}");
        }
    }

    #[test]
    fn what_set_up_installs_has_a_package_and_a_purpose() {
        for provision in PROVISIONS {
            if let From::Plan(need) = provision.from {
                assert!(!provision.package.is_empty(), "{provision:?}");
                let known = PURPOSES.iter().any(|(purpose, _)| *purpose == need);
                assert!(known, "{provision:?}: no plan looks for it");
            }
        }
    }

    #[test]
    fn nothing_is_in_the_table_twice() {
        for (index, provision) in PROVISIONS.iter().enumerate() {
            let again = PROVISIONS[index + 1..]
                .iter()
                .any(|other| other.thing == provision.thing && provision.thing != Thing::Package);
            assert!(!again, "{provision:?}");
        }
    }
}
