//! Of cargo's configuration, how packages are reached: not what somebody's builds look like.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result};
use toml_edit::DocumentMut;

/// The tables that say that.
const TABLES: &[&str] = &["http", "net", "registries", "registry", "source"];

/// Keys in them that are for one machine or one person only.
const OWN: &[(&str, &str)] = &[
    // The bundle is where Debian has it.
    ("http", "cainfo"),
    ("registry", "token"),
    ("registry", "credential-provider"),
];

/// Those settings of the cargo with this home; none if it has none.
pub(super) fn read(cargo_home: &Path) -> Result<Option<String>> {
    for name in ["config.toml", "config"] {
        let file = cargo_home.join(name);
        match fs::read_to_string(&file) {
            Ok(text) => {
                return only_transport(&text)
                    .map(Some)
                    .with_context(|| format!("reading cargo's settings in {}", file.display()));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("reading {}", file.display())),
        }
    }
    Ok(None)
}

fn only_transport(text: &str) -> Result<String> {
    let mut settings: DocumentMut = text.parse()?;
    settings.retain(|table, _| TABLES.contains(&table));
    for (table, key) in OWN {
        if let Some(table) = settings
            .get_mut(table)
            .and_then(|it| it.as_table_like_mut())
        {
            table.remove(key);
        }
    }
    if let Some(all) = settings
        .get_mut("registries")
        .and_then(|it| it.as_table_like_mut())
    {
        for (_, registry) in all.iter_mut() {
            if let Some(registry) = registry.as_table_like_mut() {
                registry.remove("token");
            }
        }
    }
    Ok(settings.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_packages_are_reached_is_kept_and_the_rest_is_not() {
        let text = "[build]\ntarget-dir = \"/big\"\n\n[source.crates-io]\nreplace-with = \"m\"\n\n\
                    [source.m]\nregistry = \"sparse+https://m.example/\"\n\n\
                    [http]\ncainfo = \"/own\"\nproxy = \"p.example\"\n\n\
                    [registries.m]\nindex = \"i\"\ntoken = \"secret\"\n";
        let kept = only_transport(text).unwrap();
        for wanted in ["m.example", "replace-with", "p.example", "index"] {
            assert!(kept.contains(wanted), "{kept}");
        }
        for unwanted in ["target-dir", "cainfo", "secret"] {
            assert!(!kept.contains(unwanted), "{kept}");
        }
    }

    #[test]
    fn a_cargo_without_settings_has_none() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(read(home.path()).unwrap(), None);
        fs::write(home.path().join("config.toml"), "[http\n").unwrap();
        let said = format!("{:#}", read(home.path()).unwrap_err());
        assert!(said.contains("config.toml"), "{said}");
    }
}
