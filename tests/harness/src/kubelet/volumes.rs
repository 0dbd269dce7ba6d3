//! Where the volumes of a pod come from on its host.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::{HostPathVolumeSource, Volume};
use tempfile::TempDir;

use super::{Surroundings, host::HostFiles};

/// Where kubelet mounts the files of a service account.
pub const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The directories of a pod's volumes, by their names.
#[derive(Debug)]
pub struct Volumes {
    /// What is not the host's own.
    files: TempDir,
    by_name: BTreeMap<String, PathBuf>,
}

impl Volumes {
    /// Makes them.
    pub fn of(volumes: &[Volume], host: &HostFiles, around: &Surroundings) -> Result<Self> {
        let files = tempfile::Builder::new()
            .prefix("culvert-test-")
            .tempdir()
            .context("cannot make a directory for volumes")?;
        let mut all = Self {
            files,
            by_name: BTreeMap::new(),
        };
        for volume in volumes {
            let place = all.place(volume, host, around);
            let place = place.with_context(|| format!("volume {}", volume.name))?;
            all.by_name.insert(volume.name.clone(), place);
        }
        if let Some((token, authority)) = &around.service_account {
            let namespace = &around.namespace;
            let files = [
                ("token", token),
                ("ca.crt", authority),
                ("namespace", namespace),
            ];
            all.write(SERVICE_ACCOUNT, files)?;
        }
        Ok(all)
    }

    /// The directory of the volume of this name, or of the service account.
    pub fn named(&self, name: &str) -> Option<&Path> {
        self.by_name.get(name).map(PathBuf::as_path)
    }

    fn place(
        &mut self,
        volume: &Volume,
        host: &HostFiles,
        around: &Surroundings,
    ) -> Result<PathBuf> {
        if let Some(source) = &volume.host_path {
            return self.of_host(&volume.name, source, host);
        }
        if let Some(source) = &volume.config_map {
            let data = around.config_maps.get(&source.name);
            let data = data.with_context(|| format!("there is no config map {}", source.name))?;
            return match &source.items {
                None => self.write(&volume.name, data),
                Some(items) => {
                    let item = |key: &String| data.get(key).with_context(|| format!("no {key}"));
                    let items = items.iter().map(|one| Ok((&*one.path, item(&one.key)?)));
                    self.write(&volume.name, items.collect::<Result<Vec<_>>>()?)
                }
            };
        }
        if volume.empty_dir.is_some() {
            return self.write(&volume.name, [("", ""); 0]);
        }
        bail!("its kind is not supported here")
    }

    /// A path of the host, made where the type says so.
    fn of_host(
        &self,
        name: &str,
        source: &HostPathVolumeSource,
        host: &HostFiles,
    ) -> Result<PathBuf> {
        let path = PathBuf::from(&source.path);
        let seen = host.seen(&path);
        match source.type_.as_deref().unwrap_or_default() {
            "Directory" if seen.is_dir() => {}
            "File" if seen.is_file() => {}
            kind @ ("Directory" | "File") => bail!("{} is no {kind}", path.display()),
            "DirectoryOrCreate" => fs::create_dir_all(&seen)?,
            "FileOrCreate" if !seen.exists() => fs::write(&seen, "")?,
            // A runtime makes a directory then. Not on this machine.
            "" if !seen.exists() => {
                let empty = self.files.path().join(name);
                fs::create_dir(&empty)?;
                return Ok(empty);
            }
            "" | "FileOrCreate" => {}
            other => bail!("the type {other} is not supported here"),
        }
        Ok(path)
    }

    fn write<N: AsRef<str>, C: AsRef<str>>(
        &mut self,
        name: &str,
        files: impl IntoIterator<Item = (N, C)>,
    ) -> Result<PathBuf> {
        let directory = self.files.path().join(name.replace('/', "-"));
        fs::create_dir(&directory)?;
        for (file, content) in files {
            fs::write(directory.join(file.as_ref()), content.as_ref())?;
        }
        self.by_name.insert(name.to_owned(), directory.clone());
        Ok(directory)
    }
}
