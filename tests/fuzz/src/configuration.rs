//! Configuration files as a fuzzer writes them: read, and converted from version to version.

use proxy_agent::config::kube_proxy::{Extent, convert, every_field, settle, version::Version};

/// Reads `data` as a configuration file.
///
/// # Panics
///
/// If a file that is right is none once it is converted, if conversion does not come to rest, or if anything else is
/// broken.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let read = settle(Some(&text), &[]);
    for mistake in read.as_ref().err().into_iter().flatten() {
        assert!(!mistake.to_string().is_empty());
    }
    for version in Version::ALL {
        let converted = convert(Some(&text), &[], version, Extent::Said);
        assert_eq!(converted.is_ok(), read.is_ok(), "{text}");
        let Ok(converted) = converted else { continue };
        let file = converted.file;
        let again = convert(Some(&file), &[], version, Extent::Said)
            .unwrap_or_else(|wrong| panic!("{text}\n{file}\n{wrong:?}"));
        assert_eq!(again.file, file, "{text}");
        if converted.lost.is_empty() {
            compare(&text, &file);
        }
    }
}

/// What the mode reads means the same, but for what only decides other defaults, which are written out.
fn compare(text: &str, file: &str) {
    const SPELLED: [&str; 3] = ["bindAddress", "nodeIPOverride", "configHardFail"];
    let fields = |text: &str| {
        let fields = every_field(text).unwrap_or_else(|wrong| panic!("{text}: {wrong:?}"));
        let fields = fields
            .into_iter()
            .filter(|field| !SPELLED.contains(&field.path));
        let all = fields.filter(|field| field.is_read && !field.path.ends_with("masqueradeBit"));
        all.map(|field| (field.path, field.value))
            .collect::<Vec<_>>()
    };
    assert_eq!(fields(text), fields(file), "{text}\n{file}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_refused_or_read() {
        for bytes in crate::noise() {
            run(&bytes);
        }
    }

    #[test]
    fn seeds_are_read() {
        let head = "kind: KubeProxyConfiguration\napiVersion: kubeproxy.config.k8s.io/";
        for file in [
            "v1alpha1\nmode: ipvs\nipvs: {syncPeriod: 9s}\n",
            "v1alpha2\nmode: nftables\nsyncPeriod: 9s\nlinux: {masqueradeAll: true}\n",
            "v1alpha2\nconfigHardFail: false\nmdoe: 1\n",
            "v1alpha1\nbindAddress: '::'\nhealthzBindAddress: 1.2.3.4\n",
        ] {
            let text = format!("{head}{file}");
            assert!(settle(Some(&text), &[]).is_ok(), "{text}");
            run(text.as_bytes());
        }
    }
}
