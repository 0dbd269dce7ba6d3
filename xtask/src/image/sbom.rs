//! The bill of materials of an image, as `CycloneDX` 1.6 has it in JSON: what is in it, under
//! which licences, and where each part is from.
//!
//! Only the order of keys and lists is ours: the same image has the same bill, to the byte.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::layout::hexadecimal;
use super::licences::Library;
use super::parts::{Key, Part};
use super::program;
use super::tools::Package;

/// Everything that is in an image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contents<'a> {
    /// What the image is called, and its version.
    pub(crate) image: (&'a str, &'a str),
    /// The crates of the program.
    pub(crate) parts: &'a BTreeMap<Key, Part>,
    /// What is linked besides.
    pub(crate) libraries: &'a [Library],
    /// Packages of Debian.
    pub(crate) packages: &'a [Package],
}

/// The bill, as of this time (seconds since 1970).
pub(crate) fn bill(contents: &Contents<'_>, created: u64) -> Result<Vec<u8>> {
    let (name, version) = contents.image;
    let created = jiff::Timestamp::from_second(i64::try_from(created)?)?.to_string();
    let crates = contents.parts.values().map(of_crate);
    let libraries = contents.libraries.iter().map(of_library);
    let packages = contents.packages.iter().map(of_package);
    let components: Vec<_> = crates.chain(libraries).chain(packages).collect();
    let mut bill = json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": created,
            "tools": { "components": [
                { "type": "application", "name": "cargo xtask image", "version": version },
            ] },
            "component": {
                "type": "container",
                "bom-ref": "image",
                "name": name,
                "version": version,
                "licenses": [{ "expression": "Apache-2.0" }],
            },
        },
        "components": components,
        "dependencies": dependencies(contents),
    });
    // A number of its own for each bill, and the same for the same.
    let digest = Sha256::digest(bill.to_string());
    bill["serialNumber"] = format!("urn:uuid:{}", uuid(&digest)).into();
    let mut text = serde_json::to_vec_pretty(&bill).context("writing the bill of materials")?;
    text.push(b'\n');
    Ok(text)
}

/// A UUID of version 8: made of what is given.
fn uuid(digest: &[u8]) -> String {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let digits = hexadecimal(&bytes);
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32];
    parts.map(|part| &digits[part]).join("-")
}

/// What refers to a crate.
fn reference((name, version): &Key) -> String {
    format!("pkg:cargo/{name}@{version}")
}

fn of_crate(part: &Part) -> Value {
    let (name, version) = &part.key;
    let mut component = json!({
        "type": if name == program::PACKAGE { "application" } else { "library" },
        "bom-ref": reference(&part.key),
        "name": name,
        "version": version,
        // What is not linked wrote code that is.
        "scope": if part.linked { "required" } else { "excluded" },
        "licenses": [{ "expression": part.licence }],
    });
    if let Some(description) = &part.description {
        component["description"] = description.as_str().into();
    }
    // Ours are in no registry.
    if let Some(checksum) = &part.checksum {
        component["purl"] = reference(&part.key).into();
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
        if let Some(repository) = &part.repository {
            component["externalReferences"] = json!([{ "type": "vcs", "url": repository }]);
        }
    }
    component
}

fn of_library(library: &Library) -> Value {
    let mut component = json!({
        "type": "library",
        "bom-ref": library.name,
        "name": library.name,
        "scope": "required",
        "licenses": [{ "expression": library.licence }],
    });
    if let Some(version) = &library.version {
        component["version"] = version.as_str().into();
    }
    component
}

fn of_package(package: &Package) -> Value {
    let Package { name, version, .. } = package;
    json!({
        "type": "library",
        "bom-ref": format!("deb:{name}"),
        "name": name,
        "version": version,
        "scope": "required",
        "purl": format!(
            "pkg:deb/debian/{name}@{}?arch={}",
            version.replace('+', "%2B").replace(':', "%3A"),
            package.architecture
        ),
        // Debian writes licences for each file, not as one expression.
        "licenses": [{ "license": { "name": format!("see /usr/share/doc/{name}/copyright") } }],
    })
}

fn dependencies(contents: &Contents<'_>) -> Vec<Value> {
    let ours = contents
        .parts
        .keys()
        .filter(|(name, _)| name == program::PACKAGE);
    let mut in_image: Vec<_> = ours.map(reference).collect();
    in_image.extend(
        contents
            .packages
            .iter()
            .map(|package| format!("deb:{}", package.name)),
    );
    let mut all = vec![json!({ "ref": "image", "dependsOn": in_image })];
    for part in contents.parts.values() {
        let mut uses: Vec<_> = part.uses.iter().map(reference).collect();
        if part.key.0 == program::PACKAGE {
            uses.extend(
                contents
                    .libraries
                    .iter()
                    .map(|library| library.name.to_owned()),
            );
        }
        all.push(json!({ "ref": reference(&part.key), "dependsOn": uses }));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_contents_have_the_same_number() {
        let parts = BTreeMap::new();
        let mut contents = Contents {
            image: ("culvert", "1"),
            parts: &parts,
            libraries: &[],
            packages: &[],
        };
        let first = bill(&contents, 7).unwrap();
        assert_eq!(first, bill(&contents, 7).unwrap());
        let read = |bill: &[u8]| serde_json::from_slice::<Value>(bill).unwrap();
        let number = read(&first)["serialNumber"].clone();
        let digits = number.as_str().unwrap().strip_prefix("urn:uuid:").unwrap();
        let lengths: Vec<_> = digits.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
        contents.image.1 = "2";
        assert_ne!(number, read(&bill(&contents, 7).unwrap())["serialNumber"]);
    }
}
