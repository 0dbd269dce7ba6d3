//! The reference page `docs/reference/config.md`: each field of kube-proxy's configuration file.

use super::{
    super::{
        cli::others::FLAGS,
        kube_proxy::fields::{FIELDS, Field, Honoured},
    },
    GENERATED, line,
};

const HEAD: &str = "\
`proxy-agent run --config FILE` takes kube-proxy's configuration file: a `KubeProxyConfiguration` \
of `kubeproxy.config.k8s.io/v1alpha1`. The DaemonSet that kubeadm creates works with only its \
image exchanged: its command line is taken as it is. \
Version `v1alpha2` is refused: it is not supported yet.

- All mistakes are reported at once, each with its field, and the agent does not start (exit code \
2). The rules are kube-proxy's.
- An unknown or repeated field is logged, and otherwise ignored, as kube-proxy does.
- A field that is not honoured, or only for some connections, is logged if it is set to anything but its \
default.
- Zero (`0`, `0s`, an empty string, `false`) means the default, except where the table says \
`null`: there, only `null` or omitting the field does.
- **Flags override the file**, and the log says so where they differ. kube-proxy ignores most flags \
when it has a file. An empty `--healthz-bind-address=` or `--metrics-bind-address=` turns a port \
off, which a file cannot do.
- `mode` decides which section is read: `ipvs` and `nftables` read their own `syncPeriod`, and \
`nftables` its own `masqueradeAll`. Every other mode, including none, `auto` and `ebpf`, reads the \
section `iptables`: that is kube-proxy's default on Linux, and the section that files fill. \
`--sync-period` and `--masquerade-all` set the value for all modes.
- The section `culvert` is our own. kube-proxy warns of it and goes on, so one file serves both. Each \
of its fields has a flag.
- `/configz` on the metrics port shows what is in force.

| field | type | default | honoured |
| --- | --- | --- | --- |";

/// Every field of the file.
pub fn config() -> String {
    let mut page = format!("# Configuration file\n\n{GENERATED}\n\n{HEAD}\n");
    for field in FIELDS.iter() {
        line(&mut page, &row(field));
    }
    line(
        &mut page,
        "\n## Flags of kube-proxy that `--help` leaves out\n\n\
         They are accepted, so that a manifest for kube-proxy works unchanged, and set the field \
         beside them.\n\n\
         | flag | field |\n| --- | --- |",
    );
    for (flag, paths) in FLAGS {
        let paths: Vec<String> = paths.iter().map(|path| format!("`{path}`")).collect();
        line(&mut page, &format!("| `--{flag}` | {} |", paths.join(", ")));
    }
    page
}

fn row(field: &Field) -> String {
    let honoured = match field.honoured {
        Honoured::Yes(what) => format!("yes: {what}"),
        Honoured::Partly(of, what) => format!("yes: {what}. Only {of}"),
        Honoured::Flag(flag) => format!("yes, as `--{}`: {}", flag.name, flag.help),
        Honoured::No(why) => format!("no: {why}"),
    };
    let default = match field.default {
        "" => "empty".to_owned(),
        default => format!("`{default}`"),
    };
    let null = if field.zero_is_default {
        ""
    } else {
        " (`null`)"
    };
    format!(
        "| `{}` | {} | {default}{null} | {honoured} |",
        field.path,
        field.kind.as_str()
    )
}
