//! The chart, rendered by the real Helm: its objects, and of its pods the containers as a container
//! runtime is told to run them.
//!
//! Knows Helm's command line and Kubernetes' API, and neither a value of the chart nor a flag of the
//! agent.

mod container;
mod helm;
pub mod values;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::{
    Metadata, Resource,
    api::{
        apps::v1::DaemonSet,
        core::v1::{ConfigMap, PodSpec},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use container::{Given, Mount, Part, Probe, Source};
pub use helm::{RELEASE, Values, directory, helm, lint, refusal, render_text};

/// The objects that became of the chart with some values.
#[derive(Debug, Clone)]
pub struct Chart {
    objects: Vec<Value>,
}

impl Chart {
    /// Renders it.
    pub fn render(values: &Values) -> Result<Self> {
        Self::read(&render_text(values)?)
    }

    /// With these values, as `--set` takes them.
    pub fn with(set: &[&str]) -> Result<Self> {
        Self::render(&Values::set(set))
    }

    /// What Helm printed.
    fn read(text: &str) -> Result<Self> {
        let objects: Vec<Option<Value>> =
            serde_saphyr::from_multiple(text).context("what Helm rendered is not YAML")?;
        let objects = objects.into_iter().flatten().filter(Value::is_object);
        Ok(Self {
            objects: objects.collect(),
        })
    }

    /// All objects.
    pub fn objects(&self) -> &[Value] {
        &self.objects
    }

    /// All objects of a kind, each as it is.
    pub fn of_kind(&self, kind: &str) -> Vec<&Value> {
        let objects = self.objects.iter();
        objects.filter(|object| object["kind"] == kind).collect()
    }

    /// The only object of this kind, with all its fields known: a field that the API does not have
    /// would be dropped in silence otherwise.
    pub fn only<T>(&self) -> Result<T>
    where
        T: Resource + Metadata<Ty = ObjectMeta> + DeserializeOwned,
    {
        let found = self.of_kind(T::KIND);
        ensure!(
            found.len() == 1,
            "{} objects are a {}",
            found.len(),
            T::KIND
        );
        serde_json::from_value(found[0].clone())
            .with_context(|| format!("what was rendered is no {}", T::KIND))
    }

    /// The pods, as the DaemonSet makes them.
    pub fn pod(&self) -> Result<PodSpec> {
        let set: DaemonSet = self.only()?;
        set.spec.template.spec.context("the DaemonSet has no pod")
    }

    /// The containers that a pod runs one after the other before the others.
    pub fn init_parts(&self) -> Result<Vec<Part>> {
        let pod = self.pod()?;
        let all = pod.init_containers.iter().flatten();
        all.map(|one| Part::of(&pod, one, false)).collect()
    }

    /// The container of the agent.
    pub fn agent(&self) -> Result<Part> {
        let pod = self.pod()?;
        ensure!(
            pod.containers.len() == 1,
            "a pod has {} containers",
            pod.containers.len()
        );
        Part::of(&pod, &pod.containers[0], pod.host_network == Some(true))
    }

    /// The files of a ConfigMap, by their names.
    pub fn files_of(&self, config_map: &str) -> Result<Vec<(String, String)>> {
        let named = |object: &&&Value| object["metadata"]["name"] == config_map;
        let found = self.of_kind(ConfigMap::KIND);
        let found = found.iter().find(named);
        let found = found.with_context(|| format!("there is no ConfigMap {config_map}"))?;
        let map: ConfigMap = serde_json::from_value((**found).clone())?;
        Ok(map.data.unwrap_or_default().into_iter().collect())
    }

    /// Writes the files of the ConfigMaps that `part` mounts into `directory`, as kubelet would; the
    /// paths, each with the place in the container.
    pub fn write_files(&self, part: &Part, directory: &Path) -> Result<Vec<(PathBuf, PathBuf)>> {
        let mut written = Vec::new();
        for mount in &part.mounts {
            let Source::ConfigMap(name) = &mount.source else {
                continue;
            };
            for (file, text) in self.files_of(name)? {
                let path = directory.join(&file);
                std::fs::write(&path, text)
                    .with_context(|| format!("cannot write {}", path.display()))?;
                written.push((path, mount.at.join(file)));
            }
        }
        Ok(written)
    }
}
