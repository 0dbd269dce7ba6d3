//! By which name this program was called, and what follows from it. Knows no flag's meaning.

use std::{ffi::OsString, path::Path};

/// The name under which it stands in kube-proxy's place: in the DaemonSet of kubeadm, say, where only
/// the image is exchanged.
pub const KUBE_PROXY: &str = "kube-proxy";

/// A command line, program included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Called {
    /// What was typed, as the parser of flags is to see it.
    pub arguments: Vec<OsString>,
    /// Whether it was called as kube-proxy, so that nobody can be expected to know our flags.
    pub as_kube_proxy: bool,
}

impl Called {
    /// Looks at the file name of the program: a link counts by its own name.
    pub fn of(arguments: impl IntoIterator<Item = OsString>) -> Self {
        let arguments: Vec<OsString> = arguments.into_iter().collect();
        let name = arguments
            .first()
            .and_then(|path| Path::new(path).file_stem());
        let as_kube_proxy = name.is_some_and(|name| name == KUBE_PROXY);
        let arguments = if as_kube_proxy {
            arguments.into_iter().map(with_dashes).collect()
        } else {
            arguments
        };
        Self {
            arguments,
            as_kube_proxy,
        }
    }
}

/// Kubernetes' programs take `--cluster_cidr` for `--cluster-cidr`.
fn with_dashes(argument: OsString) -> OsString {
    let Some(text) = argument.to_str().filter(|text| text.starts_with("--")) else {
        return argument;
    };
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (text, None),
    };
    let mut flag = name.replace('_', "-");
    if let Some(value) = value {
        flag.push('=');
        flag.push_str(value);
    }
    flag.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called(words: &[&str]) -> Called {
        Called::of(words.iter().map(OsString::from))
    }

    #[test]
    fn the_file_name_decides_wherever_the_file_is() {
        for program in [
            "kube-proxy",
            "/usr/local/bin/kube-proxy",
            "../kube-proxy",
            "kube-proxy.exe",
        ] {
            assert!(called(&[program]).as_kube_proxy, "{program}");
        }
        for program in [
            "proxy-agent",
            "/kube-proxy/proxy-agent",
            "not-kube-proxy",
            "",
        ] {
            assert!(!called(&[program]).as_kube_proxy, "{program}");
        }
        assert!(!called(&[]).as_kube_proxy);
    }

    #[test]
    fn flags_of_kube_proxy_may_have_underscores_and_values_keep_theirs() {
        let words = [
            "kube-proxy",
            "--cluster_cidr=10.0.0.0/8",
            "--config",
            "/a_b",
            "--hostname_override=a_b",
        ];
        let expected = [
            "kube-proxy",
            "--cluster-cidr=10.0.0.0/8",
            "--config",
            "/a_b",
            "--hostname-override=a_b",
        ];
        assert_eq!(called(&words).arguments, expected);
        assert_eq!(
            called(&["proxy-agent", "--a_b"]).arguments,
            ["proxy-agent", "--a_b"]
        );
    }
}
