//! What the eBPF backend needs of this host, asked one by one. Nothing is pinned or attached, and
//! an agent that runs is not disturbed: the programs are loaded with maps of their own and let go.

mod host;
mod outside;

use std::{fs::File, io::ErrorKind, path::PathBuf};

use proxy_common::names::SOCKET_PROGRAMS;

use super::{
    EbpfOptions, OpenError,
    cgroup::Cgroup,
    error::{RIGHTS, with_causes},
    links, load, neighbours,
    pins::{self, PinDir, holders},
    rights, syscalls,
};
use crate::{flags::Tc, lacking};
use proxy_backend::{Probe, Requirement};

/// Every requirement, the simplest first: what is wrong there explains what is wrong further on. And what the
/// backend lacks here.
pub fn probe(options: &EbpfOptions) -> Probe {
    let mut all = vec![
        host::kernel(),
        rights(),
        system_call(),
        pin_dir(options),
        lock(options),
    ];
    let cgroup = Cgroup::open(options.cgroup_path.as_deref());
    all.push(requirement(
        "cgroup v2",
        "programs are attached to a cgroup, and serve the sockets of processes in it and below it",
        cgroup
            .as_ref()
            .map(|cgroup| format!("{} (inode {})", cgroup.path.display(), cgroup.id))
            .map_err(ToString::to_string),
    ));
    if let Ok(cgroup) = &cgroup {
        all.push(hooks(cgroup));
        all.extend(others(options, cgroup));
    }
    let programs = programs(options);
    // Where there is no memory for those, the kernel may end whoever loads more.
    let are_loaded = programs.iter().all(|one| one.met);
    all.extend(programs);
    let outside = (options.tc != Tc::Off && are_loaded).then(|| outside::outside(options));
    let serves_clients = outside.as_ref().is_some_and(|found| found.serves_clients);
    all.extend(outside.into_iter().flat_map(|found| found.requirements));
    all.push(host::memory());
    all.push(host::btf());
    Probe {
        requirements: all,
        lacks: lacking(serves_clients).to_vec(),
    }
}

/// Something that is needed: what was found, or what is wrong and, after the last semicolon, what
/// to do.
fn requirement(
    name: &'static str,
    reason: &'static str,
    result: Result<String, String>,
) -> Requirement {
    let met = result.is_ok();
    let (found, remedy) = match result {
        Ok(found) => (found, None),
        Err(text) => match text.rsplit_once("; ") {
            Some((found, remedy)) => (found.to_owned(), Some(remedy.to_owned())),
            None => (text, None),
        },
    };
    Requirement {
        name,
        required: true,
        met,
        found,
        reason,
        remedy,
    }
}

fn rights() -> Requirement {
    let result = match rights::missing() {
        Ok(missing) if missing.is_empty() && rights::spares_pointers() => {
            Ok("all that are needed".to_owned())
        }
        Ok(missing) if missing.is_empty() => {
            Ok("all but CAP_PERFMON, which this kernel may not ask for: see `programs`".to_owned())
        }
        Ok(missing) => Err(format!("{} missing; {RIGHTS}", missing.join(", "))),
        Err(error) => Err(error.to_string()),
    };
    requirement(
        "rights",
        "loading programs needs CAP_BPF, and CAP_PERFMON where the verifier asks for it; attaching \
         them to a cgroup needs CAP_NET_ADMIN",
        result,
    )
}

fn system_call() -> Requirement {
    requirement(
        "bpf system call",
        "the backend does everything through it",
        rights::system_call().map(|()| "answers".to_owned()),
    )
}

fn pin_dir(options: &EbpfOptions) -> Requirement {
    requirement(
        "BPF file system",
        "what is pinned there stays when the agent ends, so that no connection fails until the \
         next start",
        pins::look(&options.pin_dir),
    )
}

fn lock(options: &EbpfOptions) -> Requirement {
    let pins = PinDir::peek(&options.pin_dir);
    let holder = pins.and_then(|pins| holders(pins.directory()).first().copied());
    let nobody = match File::open(&options.pin_dir) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            "not known: only its owner may read it"
        }
        _ => "no agent holds it",
    };
    Requirement {
        required: false,
        met: true,
        ..requirement(
            "pin directory",
            "only one agent at a time may use it",
            Ok(holder.map_or_else(
                || nobody.to_owned(),
                |pid| format!("held by the agent with process id {pid}"),
            )),
        )
    }
}

/// Whether the cgroup takes programs beside those that are attached already, to it and to those
/// above it: one there that allows none beside it allows none below it either.
fn hooks(cgroup: &Cgroup) -> Requirement {
    let path = cgroup.path.display();
    let mut others = 0;
    let mut refused = None;
    for name in SOCKET_PROGRAMS {
        match syscalls::on_hook(&cgroup.directory, links::hook(name)) {
            Ok(attached) => others += attached.programs.len(),
            Err(error) => refused = Some(error),
        }
    }
    let result = match (refused, alone(cgroup)) {
        (Some(error), _) => {
            let remedy = match error.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => RIGHTS,
                _ => "use a kernel that is built with CONFIG_CGROUP_BPF, version 5.10 or later",
            };
            Err(format!(
                "asking what is attached to {path}: {error}; {remedy}"
            ))
        }
        (None, None) => Ok(format!(
            "{} hooks of {path}, {others} programs on them now",
            SOCKET_PROGRAMS.len()
        )),
        (None, Some((at, programs))) => Err(format!(
            "a program that allows no others is attached where {} would go; find it with `bpftool \
             cgroup show {}` and detach it, or attach it with the multi flag",
            programs.join(", "),
            at.display()
        )),
    };
    requirement(
        "socket hooks",
        "sockets are redirected in connect, sendmsg, recvmsg, getpeername and close",
        result,
    )
}

/// Who else is on the hooks: that keeps no backend from serving.
fn others(options: &EbpfOptions, cgroup: &Cgroup) -> Option<Requirement> {
    let own = PinDir::peek(&options.pin_dir).map(|pins| {
        let programs = SOCKET_PROGRAMS.iter().filter_map(|name| {
            let link = syscalls::open_pinned(pins.links().join(name).as_ref()).ok()?;
            Some(syscalls::cgroup_link(link).ok()??.program)
        });
        programs.collect::<Vec<_>>()
    });
    // Where it cannot be asked, "socket hooks" says so.
    let others = neighbours::find(cgroup, &own.unwrap_or_default()).ok()?;
    let (found, remedy) = neighbours::summary(&others);
    Some(Requirement {
        name: "other programs",
        required: false,
        met: others.is_empty(),
        found,
        reason: "of two load balancers on the socket hooks, the one attached first redirects a \
                 socket",
        remedy,
    })
}

/// The nearest cgroup, from this one upwards, with programs that allow none where ours would go,
/// and which those are.
fn alone(cgroup: &Cgroup) -> Option<(PathBuf, Vec<&'static str>)> {
    let mut open = SOCKET_PROGRAMS.to_vec();
    let mut refused = Vec::new();
    let mut own = true;
    let above = cgroup.path.ancestors().skip(1);
    let above = above.map_while(|path| Cgroup::open(Some(path)).ok());
    let first = cgroup.directory.try_clone().map(|directory| Cgroup {
        path: cgroup.path.clone(),
        id: cgroup.id,
        directory,
    });
    for cgroup in first.into_iter().chain(above) {
        open.retain(|name| {
            let Ok(there) = syscalls::on_hook(&cgroup.directory, links::hook(name)) else {
                return false;
            };
            let allowed = if own {
                (!there.allows_others).then_some(false)
            } else {
                there.allows_below
            };
            if allowed == Some(false) {
                refused.push(*name);
            }
            allowed.is_none()
        });
        own = false;
        if !refused.is_empty() {
            return Some((cgroup.path, refused));
        }
    }
    None
}

/// Whether the kernel accepts the programs, and what a refused connect gives with them.
fn programs(options: &EbpfOptions) -> [Requirement; 2] {
    let loaded = load::try_load(&options.map_sizes);
    let refusal = match &loaded {
        Ok(refusal) => (*refusal).to_owned(),
        Err(_) => "unknown, as the programs do not load".to_owned(),
    };
    // No reason to take another backend: the agent tries again.
    let passes = matches!(loaded, Err(OpenError::Later(_)));
    let programs = requirement(
        "programs",
        "the kernel's verifier decides what it runs",
        match loaded {
            Ok(_) => Ok(format!("all {} load", SOCKET_PROGRAMS.len())),
            Err(OpenError::Locked(path)) => Err(path.display().to_string()),
            Err(error) => Err(with_causes(&error)),
        },
    );
    let programs = Requirement {
        required: !passes,
        ..programs
    };
    let refusal = Requirement {
        required: false,
        met: refusal == "ECONNREFUSED",
        remedy: (refusal == "EPERM").then(|| {
            "use Linux 6.1 or later if applications must distinguish it from a denial".to_owned()
        }),
        ..requirement(
            "refusal",
            "with bpf_set_retval (Linux 6.1), a connect to a Service without endpoints gives \
             ECONNREFUSED, without it EPERM",
            Ok(refusal),
        )
    };
    [programs, refusal]
}
