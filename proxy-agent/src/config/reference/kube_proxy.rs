//! The reference pages of kube-proxy's configuration file: how it is read (`docs/reference/config.md`), and each field of
//! each version.

use super::{
    super::{
        cli::others::FLAGS,
        kube_proxy::{
            schema,
            version::{Spelling, Version},
        },
    },
    GENERATED, line,
};

const HEAD: &str = "\
`proxy-agent run --config FILE` takes kube-proxy's configuration file, as YAML or JSON: a \
`KubeProxyConfiguration` of `kubeproxy.config.k8s.io`. The DaemonSet that kubeadm creates works with only its \
image exchanged: its command line is taken as it is.

| version | fields | JSON Schema |
| --- | --- | --- |
| `v1alpha1`, kube-proxy's since 2017 | [table](config-v1alpha1.md) | [schema](config-v1alpha1.schema.json) |
| `v1alpha2`, of KEP-784: what is for one system or one mode apart, what modes share once | \
[table](config-v1alpha2.md) | [schema](config-v1alpha2.schema.json) |

- **All mistakes are reported at once**, each with its field as the file spells it, line and column, and the agent \
does not start (exit code 2). The rules are kube-proxy's.
- **Unknown and repeated fields** are logged in v1alpha1, and otherwise ignored, as kube-proxy does. In v1alpha2 they \
are mistakes, unless the file has `configHardFail: false`. What is probably meant is named.
- Of several documents in a file the first one counts, as for kube-proxy; the others are logged.
- **Sections of other modes**: what is wrong in the section of a mode that is not selected is logged, and refused by \
neither program. The type of each value must be right everywhere.
- A field that is not honoured is logged if it is set to anything but its default.
- **Instance-local** fields are about one node, such as `hostnameOverride`; the tables name them. In a file that \
several nodes share, as in a ConfigMap, they would be wrong on all but one: give their flags instead, as \
`--hostname-override=$(NODE_NAME)`. All other fields may be shared.
- **The file is followed** while the agent serves, a ConfigMap's links included. A change is in force a \
second or two after it is there, with no connection interrupted: log level and sync period in place, everything else by the process \
executing itself anew. A file that cannot be used changes nothing, and is an error in the log, an Event on the Node, and \
`culvert_config_last_reload_successful` 0.
- At most 100 mistakes, and as many warnings, are told of one file, and of each the first 1,000 bytes.
- Zero (`0`, `0s`, an empty string) means the default, except where the table says `null`: there, only `null` or \
omitting the field does.
- **Flags override the file**, and the log says so where they differ. kube-proxy ignores all flags but \
`--hostname-override` and `--v` when it has a file. Here they count, as with every other component: who adds a flag \
wants it to do something, and a flag that was left behind is told at each start. An empty \
`--healthz-bind-address=` or `--metrics-bind-address=` turns a port off, which a file cannot do.
- `mode` decides which section is read. `ipvs` and `nftables` have their own; every other mode, including none, \
`auto` and `ebpf`, reads the section `iptables`: that is kube-proxy's default on Linux, and the section that files \
fill. `--sync-period` and `--masquerade-all` set the value for all modes.
- The section `culvert` is our own. kube-proxy warns of it and goes on, so one file serves both. Each \
of its fields has a flag, but for `culvert.mode`, which is what `--proxy-mode` is.
- `/configz` on the metrics port shows what is in force, as v1alpha1.

## A file for both programs

kube-proxy refuses v1alpha2, `mode: auto` and `mode: ebpf`. A node that may go back keeps v1alpha1 and a mode that \
kube-proxy has, or none, with `culvert.mode` beside it:

```yaml
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
culvert:
  mode: ebpf
```

`proxy-agent config validate --for kube-proxy FILE` checks that.

## From one version to the other

`proxy-agent config convert --to v1alpha2 FILE` prints the same as v1alpha2, `--to v1alpha1` the other way. What the \
file decides in its mode stays: defaults that differ are written out (`bindAddressHardFail`, \
`iptables.localhostNodePorts`), and what the other version cannot say is told on standard error. \
`--write-config-to`, as kube-proxy has it, writes the newest version.

- v1alpha2 has one `syncPeriod`, one `minSyncPeriod` and one `linux.masqueradeAll` for all modes: those of the \
selected mode count.
- `bindAddress` becomes `nodeIPOverride`, unless it names no address (`0.0.0.0`, `::`).
- In v1alpha1, mode `ipvs` has the masquerade bit of `iptables`; v1alpha2 has one of its own.
- Where KEP-784 is silent: `minSyncPeriod` is 1s by default in every mode, and `0s` is a value of its own there; \
`healthzBindAddress` and `metricsBindAddress` stay as they are; `configHardFail` is about unknown and repeated \
fields alone.
";

/// How the file is read.
pub fn config() -> String {
    let mut page = format!("# Configuration file\n\n{GENERATED}\n\n{HEAD}");
    line(
        &mut page,
        "\n## Flags of kube-proxy that `--help` leaves out\n\n\
         They are accepted, so that a manifest for kube-proxy works unchanged, and set the field \
         beside them (as v1alpha1 has it). `--healthz-port` and `--metrics-port` are accepted and set nothing, as \
         with kube-proxy 1.36.\n\n\
         | flag | field |\n| --- | --- |",
    );
    for (flag, paths) in FLAGS {
        let paths: Vec<String> = paths.iter().map(|path| format!("`{path}`")).collect();
        line(&mut page, &format!("| `--{flag}` | {} |", paths.join(", ")));
    }
    page
}

/// Every field of a version: the name of the page, and its text.
pub fn config_version(version: Version) -> (String, String) {
    let mut page = format!(
        "# Configuration file, {version}\n\n{GENERATED}\n\n`apiVersion: {}`. [How files are read](config.md).\n\n\
         | field | holds | default | honoured |\n| --- | --- | --- | --- |\n",
        version.api_version()
    );
    for spelling in version.spellings() {
        line(&mut page, &row(spelling));
    }
    (format!("config-{version}.md"), page)
}

/// The JSON Schema of a version: the name of the file, and its text.
pub fn config_schema(version: Version) -> (String, String) {
    let schema = schema::schema(version);
    (
        format!("config-{version}.schema.json"),
        format!("{schema:#}\n"),
    )
}

fn row(spelling: &Spelling) -> String {
    format!(
        "| `{}` | {} | {} | {} |",
        spelling.path,
        spelling.allowed(),
        spelling.default_text(),
        spelling.field().effect()
    )
}
