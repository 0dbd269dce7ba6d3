//! What the flags of the node API mean: whom to follow, and where to be followed.

#[cfg(test)]
mod tests;

use std::{path::PathBuf, sync::Arc};

use proxy_api::{ClientName, Target, TlsFiles, server::SOCKET_MODE};

use crate::config::{
    cli::{AgentArgs, ListenArgs, TargetArgs},
    kube_proxy::{self, Settings},
};

/// A brain to follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Brain {
    /// Where it is.
    pub target: Target,
    /// For a `tls://` target.
    pub tls: Option<TlsFiles>,
    /// For a `tcp://` target.
    pub token_file: Option<PathBuf>,
    /// How this agent is called there.
    pub client_name: ClientName,
    /// The node that it must speak for, if the user named one.
    pub node: Option<Arc<str>>,
}

/// Where to be followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// Each once.
    pub targets: Vec<Target>,
    /// Rights of Unix sockets.
    pub mode: u32,
    /// For `tls://` targets.
    pub tls: Option<TlsFiles>,
    /// For `tcp://` targets.
    pub token_file: Option<PathBuf>,
}

/// The brain that the flags name, if they name one. `default_name` is this agent's.
pub(super) fn brain(
    args: &TargetArgs,
    default_name: &str,
    node: Option<Arc<str>>,
    mistakes: &mut Vec<String>,
) -> Option<Brain> {
    let files = [
        &args.target_tls_cert,
        &args.target_tls_key,
        &args.target_tls_ca,
    ];
    let tls = tls("--target-", files, mistakes);
    let name = args.client_name.as_deref().unwrap_or(default_name);
    let name = match name.parse() {
        Ok(name) => Some(name),
        Err(error) => {
            mistakes.push(format!("--client-name: {error}"));
            None
        }
    };
    let Some(typed) = &args.target else {
        if args.client_name.is_some() {
            mistakes
                .push("--client-name: needs --target, the brain that gets this name".to_owned());
        }
        needed("--target", &[], tls.is_some(), mistakes);
        token("--target", &[], args.target_token_file.is_some(), mistakes);
        return None;
    };
    let target = target("--target", typed, mistakes)?;
    if let Target::Tcp(host) | Target::Tls(host) = &target
        && host.port == 0
    {
        mistakes.push(format!("--target {target}: the port must not be 0"));
    }
    needed("--target", &[&target], tls.is_some(), mistakes);
    token(
        "--target",
        &[&target],
        args.target_token_file.is_some(),
        mistakes,
    );
    Some(Brain {
        target,
        tls,
        token_file: args.target_token_file.clone(),
        client_name: name?,
        node,
    })
}

/// What was configured although the brain decides it, for the log.
pub(super) fn idle(args: &AgentArgs, settings: &Settings) -> Vec<String> {
    if args.target.target.is_none() {
        return Vec::new();
    }
    let warning = |what: &str| {
        format!("{what}: has no effect with --target: the brain decides where traffic goes")
    };
    let given = args.model.given();
    let (mode, idle): (Vec<_>, Vec<_>) =
        given.into_iter().partition(|one| one.flag == "proxy-mode");
    let mut warnings: Vec<_> = idle
        .iter()
        .map(|one| warning(&format!("--{}", one.flag)))
        .collect();
    if let (true, Some(file), Ok(usual)) = (
        warnings.is_empty(),
        &args.model.config,
        kube_proxy::settle(None, &mode),
    ) && settings.model("".into()) != usual.model("".into())
    {
        let what = format!("the traffic settings of --config {}", file.display());
        warnings.push(warning(&what));
    }
    warnings
}

/// Where the flags say to listen.
pub(super) fn listen(args: &ListenArgs, mistakes: &mut Vec<String>) -> Listen {
    let files = [
        &args.listen_tls_cert,
        &args.listen_tls_key,
        &args.listen_tls_ca,
    ];
    let tls = tls("--listen-", files, mistakes);
    let mut targets = Vec::new();
    for typed in &args.listen {
        let Some(target) = target("--listen", typed, mistakes) else {
            continue;
        };
        if targets.contains(&target) {
            mistakes.push(format!("--listen {target}: is given twice"));
        }
        targets.push(target);
    }
    // With a wrong address, what belongs to it would be a mistake that follows from the first.
    if targets.len() == args.listen.len() {
        let all: Vec<_> = targets.iter().collect();
        needed("--listen", &all, tls.is_some(), mistakes);
        token("--listen", &all, args.listen_token_file.is_some(), mistakes);
    }
    let on_socket = targets.iter().any(|one| matches!(one, Target::Unix(_)));
    let mode = args.listen_mode.as_deref().map(|typed| {
        let mode = mode(typed);
        if mode.is_none() {
            mistakes.push(format!(
                "--listen-mode {typed}: must be a file mode in octal, such as 0660"
            ));
        } else if !on_socket && targets.len() == args.listen.len() {
            mistakes.push("--listen-mode: is for --listen unix:///PATH".to_owned());
        }
        mode
    });
    Listen {
        mode: mode.flatten().unwrap_or(SOCKET_MODE),
        targets,
        tls,
        token_file: args.listen_token_file.clone(),
    }
}

/// What is as it was asked for and may not be what was meant, for the log.
pub(super) fn unheard(args: &ListenArgs) -> Option<String> {
    let is_plain = |typed: &&String| matches!(typed.parse(), Ok(Target::Tcp(_)));
    let plain = args.listen.iter().find(is_plain)?;
    args.listen_token_file.is_none().then(|| {
        format!(
            "--listen {plain}: serves every process of this host, and accepts no reports; if \
             backends must report, give --listen-token-file, or use unix://"
        )
    })
}

fn target(flag: &str, typed: &str, mistakes: &mut Vec<String>) -> Option<Target> {
    let parsed = typed.parse();
    parsed
        .map_err(|error| mistakes.push(format!("{flag}: {error}")))
        .ok()
}

/// Certificates must be there where an address needs them, and nowhere else.
fn needed(flag: &str, targets: &[&Target], given: bool, mistakes: &mut Vec<String>) {
    match targets.iter().find(|target| target.is_tls()) {
        Some(target) if !given => mistakes.push(format!(
            "{flag} {target}: needs {flag}-tls-cert, {flag}-tls-key and {flag}-tls-ca"
        )),
        None if given => mistakes.push(format!(
            "{flag}-tls-cert: is for {flag} tls://, and no such address was given"
        )),
        _ => {}
    }
}

/// A token file is of use with loopback only: other clients are known by better means.
fn token(flag: &str, targets: &[&Target], given: bool, mistakes: &mut Vec<String>) {
    if given
        && !targets
            .iter()
            .any(|target| matches!(target, Target::Tcp(_)))
    {
        mistakes.push(format!(
            "{flag}-token-file: is for {flag} tcp://, and no such address was given"
        ));
    }
}

/// The files that the flags name which begin with `prefix`.
fn tls(prefix: &str, files: [&Option<PathBuf>; 3], mistakes: &mut Vec<String>) -> Option<TlsFiles> {
    let files = TlsFiles::of_flags(prefix, files.map(Clone::clone));
    files.unwrap_or_else(|mistake| {
        mistakes.push(mistake.to_string());
        None
    })
}

/// Rights of a file.
fn mode(typed: &str) -> Option<u32> {
    let digits = typed.strip_prefix("0o").unwrap_or(typed);
    let octal = !digits.is_empty() && digits.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
    let mode = octal.then(|| u32::from_str_radix(digits, 8).ok())??;
    (mode <= 0o777).then_some(mode)
}
