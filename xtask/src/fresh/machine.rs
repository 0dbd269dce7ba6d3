//! What a bare root gets of this machine: how packages are reached, and rustup's directories.
//!
//! Only that: mirrors of Debian, apt's and cargo's settings about transport, the certificates that
//! are trusted here, proxies, and how names are resolved. No credentials, no sources of others.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::setup::apt;
use crate::vm::kernels::configured_uris;

mod cargo_settings;

/// Where Debian's programs look for certificates, rustls and git among them.
const BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Variables that name a bundle of one's own, the one that cargo obeys first.
const BUNDLE_VARIABLES: &[&str] = &["CARGO_HTTP_CAINFO", "SSL_CERT_FILE"];

/// Beginnings of settings of apt that say how packages are reached.
const APT_SETTINGS: &[&str] = &[
    "Acquire::http::",
    "Acquire::https::",
    "Acquire::Check-",
    "Acquire::ForceIPv",
    "Acquire::Languages",
    "Acquire::Retries",
];

/// Variables that say how the network is reached; those that end with an underscore are
/// beginnings. A token is never among them.
const VARIABLES: &[&str] = &[
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "TERM",
    "CARGO_HTTP_",
    "CARGO_NET_",
    "CARGO_SOURCE_",
];

/// What was found.
pub(super) struct Machine {
    /// Debian's suites: address and name.
    suites: Vec<(String, String)>,
    apt: String,
    bundle: Option<PathBuf>,
    cargo: Option<String>,
    variables: Vec<(OsString, OsString)>,
    rustup: PathBuf,
    proxies: PathBuf,
}

impl Machine {
    /// Looks, and changes nothing.
    pub(super) fn look() -> Result<Self> {
        ensure!(
            apt::is_debian(),
            "making a bare Debian: this machine is none, and so knows no mirror of it"
        );
        let suites = suites(&configured_uris()?);
        ensure!(
            !suites.is_empty(),
            "making a bare Debian: apt on this machine is configured with no mirror of it"
        );
        let home = PathBuf::from(env::var_os("HOME").unwrap_or_else(|| "/root".into()));
        let of = |variable: &str, default: &str| {
            let set = env::var_os(variable).filter(|value| !value.is_empty());
            set.map_or_else(|| home.join(default), PathBuf::from)
        };
        let cargo_home = of("CARGO_HOME", ".cargo");
        let machine = Self {
            suites,
            apt: apt_settings(&apt_dump()?),
            bundle: bundle(),
            cargo: cargo_settings::read(&cargo_home)?,
            variables: env::vars_os()
                .filter(|(name, _)| name.to_str().is_some_and(is_handed_over))
                .collect(),
            rustup: of("RUSTUP_HOME", ".rustup"),
            proxies: cargo_home.join("bin"),
        };
        ensure!(
            machine.rustup.join("toolchains").is_dir() && machine.proxies.join("rustup").exists(),
            "lending Rust to a bare root: {} and {} are not as rustup leaves them; install Rust \
             through rustup, or set RUSTUP_HOME and CARGO_HOME",
            machine.rustup.display(),
            machine.proxies.display()
        );
        Ok(machine)
    }

    /// One that lends a root all of its programs.
    #[cfg(test)]
    pub(super) fn lending_all() -> Self {
        Self {
            suites: Vec::new(),
            apt: String::new(),
            bundle: None,
            cargo: None,
            variables: Vec::new(),
            rustup: "/usr".into(),
            proxies: "/usr/bin".into(),
        }
    }

    /// The release that this machine's apt reads first.
    pub(super) fn suite(&self) -> &str {
        &self.suites[0].1
    }

    /// Where that is.
    pub(super) fn mirror(&self) -> &str {
        &self.suites[0].0
    }

    /// rustup's home.
    pub(super) fn rustup(&self) -> &Path {
        &self.rustup
    }

    /// The directory of cargo's and rustc's proxies.
    pub(super) fn proxies(&self) -> &Path {
        &self.proxies
    }

    /// The environment inside, nothing of which is inherited otherwise.
    pub(super) fn environment(&self) -> Vec<(OsString, OsString)> {
        let path = format!(
            "{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            self.proxies.display()
        );
        let fixed: [(&str, OsString); 5] = [
            ("HOME", "/root".into()),
            ("LANG", "C.UTF-8".into()),
            ("PATH", path.into()),
            ("RUSTUP_HOME", self.rustup.clone().into()),
            // Its directories are read-only there: what is missing cannot be installed.
            ("RUSTUP_AUTO_INSTALL", "0".into()),
        ];
        let fixed = fixed.into_iter().map(|(name, value)| (name.into(), value));
        fixed.chain(self.variables.iter().cloned()).collect()
    }

    /// Writes what is files into a root.
    pub(super) fn hand_over(&self, root: &Path) -> Result<()> {
        let write = |path: &str, text: &str| -> Result<()> {
            let file = root.join(path);
            if let Some(dir) = file.parent() {
                fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
            }
            fs::write(&file, text).with_context(|| format!("writing {}", file.display()))
        };
        write("etc/apt/sources.list", &sources_list(&self.suites))?;
        write("etc/apt/apt.conf.d/10reached-as-outside", &self.apt)?;
        if let Some(settings) = &self.cargo {
            write("root/.cargo/config.toml", settings)?;
        }
        let files = self.bundle.iter().map(|file| (file.as_path(), BUNDLE));
        let files =
            files.chain(["/etc/resolv.conf", "/etc/hosts"].map(|name| (Path::new(name), name)));
        for (from, to) in files {
            let to = root.join(to.trim_start_matches('/'));
            fs::copy(from, &to)
                .with_context(|| format!("copying {} to {}", from.display(), to.display()))?;
        }
        Ok(())
    }
}

/// Debian's own among the addresses that apt would read: base and suite, each once.
fn suites(print_uris: &str) -> Vec<(String, String)> {
    let mut seen = BTreeSet::new();
    let found = print_uris.lines().filter_map(|line| {
        let address = line.strip_prefix('\'')?.split('\'').next()?;
        let (base, rest) = address.split_once("/dists/")?;
        let own = ["/debian", "/debian-security"]
            .iter()
            .any(|end| base.trim_end_matches('/').ends_with(end));
        // The same address is named once more for each component and architecture.
        let suite = rest.strip_suffix("/InRelease")?;
        own.then(|| (base.to_owned(), suite.to_owned()))
    });
    let mut suites: Vec<_> = found.filter(|suite| seen.insert(suite.clone())).collect();
    // The release itself first: its updates are named after it.
    suites.sort_by_key(|(_, suite)| suite.contains('-'));
    suites
}

fn sources_list(suites: &[(String, String)]) -> String {
    let signed = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]";
    let line = |(base, suite): &(String, String)| format!("deb {signed} {base} {suite} main\n");
    suites.iter().map(line).collect()
}

fn apt_dump() -> Result<String> {
    let output = Command::new("apt-config").arg("dump").output();
    let output = output.context("asking apt for its settings (`apt-config dump`)")?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Settings about transport, as apt reads them.
fn apt_settings(dump: &str) -> String {
    let lines = dump.lines().filter(|line| {
        APT_SETTINGS
            .iter()
            .any(|beginning| line.starts_with(beginning))
    });
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// The certificates that this machine trusts.
fn bundle() -> Option<PathBuf> {
    let named = BUNDLE_VARIABLES
        .iter()
        .filter_map(env::var_os)
        .map(PathBuf::from);
    named
        .chain([PathBuf::from(BUNDLE)])
        .find(|file| file.is_file())
}

fn is_handed_over(name: &str) -> bool {
    let wanted = VARIABLES
        .iter()
        .any(|known| name == *known || known.ends_with('_') && name.starts_with(known));
    // The bundle is where Debian has it, whatever its name is outside.
    wanted && !name.ends_with("_TOKEN") && !BUNDLE_VARIABLES.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debian_s_own_suites_are_taken_the_release_first() {
        let uris = "'http://o.example/apt/dists/x/InRelease' a 0\n\
                    'http://m.example/debian/dists/trixie-updates/InRelease' b 0\n\
                    'http://m.example/debian/dists/trixie/InRelease' c 0\n\
                    'http://m.example/debian/dists/trixie/main/binary-all/Packages.xz' e 0\n\
                    'http://m.example/debian/dists/trixie/InRelease' c 0\n\
                    'http://s.example/debian-security/dists/trixie-security/InRelease' d 0\n";
        let found = suites(uris);
        let names: Vec<_> = found.iter().map(|(_, suite)| suite.as_str()).collect();
        assert_eq!(names, ["trixie", "trixie-updates", "trixie-security"]);
        let list = sources_list(&found);
        assert!(
            list.contains("] http://m.example/debian trixie main\n"),
            "{list}"
        );
        assert_eq!(suites(""), []);
    }

    #[test]
    fn of_apt_s_settings_those_about_transport_are_taken() {
        let dump = "APT::Install-Recommends \"1\";\nAcquire::http::Proxy \"http://p.example\";\n\
                    Acquire::Check-Date \"false\";\nDPkg::Post-Invoke:: \"rm\";\n";
        assert_eq!(
            apt_settings(dump),
            "Acquire::http::Proxy \"http://p.example\";\nAcquire::Check-Date \"false\";\n"
        );
    }

    #[test]
    fn variables_about_the_network_are_handed_over_and_secrets_are_not() {
        for name in [
            "https_proxy",
            "CARGO_NET_RETRY",
            "CARGO_SOURCE_X_REPLACE_WITH",
            "TERM",
        ] {
            assert!(is_handed_over(name), "{name}");
        }
        for name in [
            "PATH",
            "CARGO_TARGET_DIR",
            "CARGO_REGISTRY_TOKEN",
            "CARGO_HTTP_CAINFO",
            "CULVERT_CACHE",
        ] {
            assert!(!is_handed_over(name), "{name}");
        }
    }
}
