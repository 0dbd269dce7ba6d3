//! From a container of a pod's specification to one that can be run.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::{
    Container as Specified, EnvVar, PodSpec, SecurityContext, VolumeMount,
};

use super::{
    Surroundings,
    volumes::{SERVICE_ACCOUNT, Volumes},
};
use crate::{
    container::{
        Capability, Container, Image, PATH, Profile, Propagation, Volume, all_capabilities,
        capability,
    },
    world::NODE_ADDRESSES,
};

/// A Service that nobody serves before a service proxy does.
const API_SERVER: [(&str, &str); 2] = [
    ("KUBERNETES_SERVICE_HOST", "10.96.0.1"),
    ("KUBERNETES_SERVICE_PORT", "443"),
];

/// What container runtimes leave a container when nothing is said.
const USUAL: [Capability; 14] = [
    Capability::CAP_AUDIT_WRITE,
    Capability::CAP_CHOWN,
    Capability::CAP_DAC_OVERRIDE,
    Capability::CAP_FOWNER,
    Capability::CAP_FSETID,
    Capability::CAP_KILL,
    Capability::CAP_MKNOD,
    Capability::CAP_NET_BIND_SERVICE,
    Capability::CAP_NET_RAW,
    Capability::CAP_SETFCAP,
    Capability::CAP_SETGID,
    Capability::CAP_SETPCAP,
    Capability::CAP_SETUID,
    Capability::CAP_SYS_CHROOT,
];

/// The container and its command line.
pub fn of(
    specified: &Specified,
    pod: &PodSpec,
    unpacked: &Path,
    volumes: &Volumes,
    around: &Surroundings,
) -> Result<(Container, Vec<OsString>)> {
    let environment = environment(specified, around)?;
    let command = command(specified, &environment)?;
    let asked = specified.security_context.clone().unwrap_or_default();
    let privileged = asked.privileged == Some(true);
    let of_pod = pod.security_context.as_ref();
    let user = asked.run_as_user.or(of_pod.and_then(|one| one.run_as_user));
    ensure!(user.unwrap_or(0) == 0, "only the user 0 is supported here");
    let profile = asked.seccomp_profile.as_ref();
    let profile = profile.or(of_pod.and_then(|one| one.seccomp_profile.as_ref()));
    let seccomp = match profile.map(|one| one.type_.as_str()) {
        _ if privileged => Profile::Unconfined,
        Some("RuntimeDefault") => Profile::RuntimeDefault,
        None | Some("Unconfined") => Profile::Unconfined,
        Some(other) => bail!("the seccomp profile {other} is not supported here"),
    };
    let mounts = specified.volume_mounts.iter().flatten();
    let mut mounts: Vec<_> = mounts
        .map(|mount| volume(mount, volumes))
        .collect::<Result<_>>()?;
    let mounted = |at: &str, mounts: &[Volume]| mounts.iter().any(|one| one.at == Path::new(at));
    let of_account = volumes.named(SERVICE_ACCOUNT);
    if let Some(files) = of_account.filter(|_| !mounted(SERVICE_ACCOUNT, &mounts)) {
        mounts.push(Volume::to_read(files.to_owned(), SERVICE_ACCOUNT));
    }
    // Of the host, whose network it has.
    for file in ["/etc/hosts", "/etc/resolv.conf"] {
        if !mounted(file, &mounts) && Path::new(file).exists() {
            mounts.push(Volume::to_read(PathBuf::from(file), file));
        }
    }
    let container = Container {
        capabilities: if privileged {
            all_capabilities()?
        } else {
            capabilities(&asked)?
        },
        seccomp,
        may_gain_rights: privileged || asked.allow_privilege_escalation != Some(false),
        writable: Vec::new(),
        image: Some(Image {
            unpacked: unpacked.to_owned(),
            read_only: asked.read_only_root_filesystem == Some(true),
            kernel_writable: privileged,
            volumes: mounts,
            environment,
        }),
        beside: None,
    };
    Ok((container, command))
}

fn volume(mount: &VolumeMount, volumes: &Volumes) -> Result<Volume> {
    let directory = volumes.named(&mount.name);
    let directory = directory.with_context(|| format!("the pod has no volume {}", mount.name))?;
    ensure!(
        mount.sub_path_expr.is_none(),
        "subPathExpr is not supported here"
    );
    let of_host = match &mount.sub_path {
        Some(path) => directory.join(path),
        None => directory.to_owned(),
    };
    Ok(Volume {
        of_host,
        at: PathBuf::from(&mount.mount_path),
        read_only: mount.read_only == Some(true),
        propagation: match mount.mount_propagation.as_deref() {
            None | Some("None") => Propagation::None,
            Some("HostToContainer") => Propagation::HostToContainer,
            Some("Bidirectional") => Propagation::Bidirectional,
            Some(other) => bail!("the mount propagation {other} is not known"),
        },
    })
}

fn capabilities(asked: &SecurityContext) -> Result<Vec<Capability>> {
    let asked = asked.capabilities.clone().unwrap_or_default();
    let (drop, add) = (
        asked.drop.unwrap_or_default(),
        asked.add.unwrap_or_default(),
    );
    let mut kept: Vec<_> = USUAL.into();
    if drop.iter().any(|one| one == "ALL") {
        kept.clear();
    } else {
        let drop: Vec<_> = drop
            .iter()
            .map(|one| capability(one))
            .collect::<Result<_>>()?;
        kept.retain(|one| !drop.contains(one));
    }
    for one in &add {
        kept.push(capability(one)?);
    }
    Ok(kept)
}

fn environment(specified: &Specified, around: &Surroundings) -> Result<BTreeMap<String, String>> {
    ensure!(
        specified.env_from.is_none(),
        "envFrom is not supported here"
    );
    let given = API_SERVER.into_iter().chain([PATH]);
    let mut all: BTreeMap<_, _> = given.map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
    for one in specified.env.iter().flatten() {
        let value = match &one.value {
            Some(value) => expanded(value, &all),
            None => told(one, around).with_context(|| format!("the variable {}", one.name))?,
        };
        all.insert(one.name.clone(), value);
    }
    Ok(all)
}

/// What a pod is told of itself.
fn told(variable: &EnvVar, around: &Surroundings) -> Result<String> {
    let Some(source) = &variable.value_from else {
        return Ok(String::new());
    };
    let field = source
        .field_ref
        .as_ref()
        .context("only fieldRef is supported here")?;
    let address = NODE_ADDRESSES[0].to_string();
    Ok(match field.field_path.as_str() {
        "spec.nodeName" => around.node_name.clone(),
        "metadata.name" => "culvert-test".to_owned(),
        "metadata.namespace" => around.namespace.clone(),
        "status.hostIP" | "status.podIP" => address,
        other => bail!("the field {other} is not supported here"),
    })
}

fn command(specified: &Specified, environment: &BTreeMap<String, String>) -> Result<Vec<OsString>> {
    let command = specified.command.as_ref();
    let command = command.context("a container without a command is not supported here")?;
    let words = command.iter().chain(specified.args.iter().flatten());
    Ok(words
        .map(|word| expanded(word, environment).into())
        .collect())
}

/// With `$(NAME)` replaced where the name is known, as Kubernetes does; `$$` is a dollar sign.
pub fn expanded(text: &str, environment: &BTreeMap<String, String>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        rest = after;
        if let Some(literal) = after.strip_prefix('$') {
            out.push('$');
            rest = literal;
            continue;
        }
        let named = after
            .strip_prefix('(')
            .and_then(|inside| inside.split_once(')'));
        match named.and_then(|(name, after)| Some((environment.get(name)?, after))) {
            Some((value, after)) => {
                out.push_str(value);
                rest = after;
            }
            None => out.push('$'),
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_expanded_as_kubernetes_does() {
        let environment = BTreeMap::from([("NODE_NAME".to_owned(), "a".to_owned())]);
        for (text, expected) in [
            ("--hostname-override=$(NODE_NAME)", "--hostname-override=a"),
            (
                "$$(NODE_NAME) $(OTHER) $5 $(",
                "$(NODE_NAME) $(OTHER) $5 $(",
            ),
        ] {
            assert_eq!(expanded(text, &environment), expected);
        }
    }

    #[test]
    fn capabilities_are_what_is_left_and_what_is_added() {
        let asked =
            |json: serde_json::Value| capabilities(&serde_json::from_value(json).unwrap()).unwrap();
        let all_but = serde_json::json!({"capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]}});
        assert_eq!(asked(all_but), [Capability::CAP_NET_ADMIN]);
        let one_less = serde_json::json!({"capabilities": {"drop": ["NET_RAW"]}});
        assert_eq!(asked(one_less).len(), USUAL.len() - 1);
    }
}
