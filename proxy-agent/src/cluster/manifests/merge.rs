//! Objects of all files to events: which definition counts where there are several, and what
//! changed since the last time.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    path::Path,
    sync::Arc,
};

use proxy_model::{ClusterEvent, Diagnostic};

use super::object::{Content, Key, Object};

/// The objects in force.
#[derive(Debug, Default)]
pub(super) struct Merged {
    objects: BTreeMap<Key, Effective>,
}

#[derive(Debug, PartialEq, Eq)]
struct Effective {
    content: Arc<Content>,
    /// Of the object itself, and of its being defined more than once.
    diagnostics: Vec<Diagnostic>,
}

impl Merged {
    /// Puts `objects`, in order of precedence, the last counts most, in place of those in force,
    /// and returns what leads from these to them.
    pub(super) fn replace<'a>(
        &mut self,
        objects: impl IntoIterator<Item = (impl AsRef<Path> + Copy, &'a Object)>,
    ) -> Vec<ClusterEvent> {
        let mut definitions = BTreeMap::new();
        let mut shadowed: BTreeMap<&Key, Vec<String>> = BTreeMap::new();
        for (file, object) in objects {
            match definitions.entry(&object.key) {
                Entry::Vacant(entry) => {
                    entry.insert((file, object));
                }
                Entry::Occupied(mut entry) => {
                    let (file, earlier) = entry.insert((file, object));
                    shadowed
                        .entry(&object.key)
                        .or_default()
                        .push(place(file.as_ref(), earlier));
                }
            }
        }
        let objects = definitions
            .into_iter()
            .map(|(key, (file, object))| {
                let mut diagnostics = object.content.diagnostics().to_vec();
                if let Some(others) = shadowed.get(key) {
                    diagnostics.push(Diagnostic {
                        object: key.to_string().into(),
                        field: "metadata.name".to_owned(),
                        message: format!(
                            "is also defined in {}: the definition in {} counts",
                            others.join(", "),
                            place(file.as_ref(), object),
                        ),
                    });
                }
                let content = Arc::clone(&object.content);
                (
                    key.clone(),
                    Effective {
                        content,
                        diagnostics,
                    },
                )
            })
            .collect();
        let before = std::mem::replace(&mut self.objects, objects);
        let mut events = Vec::new();
        for (key, old) in &before {
            if !self.objects.contains_key(key) {
                events.extend(old.content.value_is_some().then(|| deleted(key)));
                if !old.diagnostics.is_empty() {
                    events.push(diagnosed(key, &[]));
                }
            }
        }
        for (key, new) in &self.objects {
            new.change_from(before.get(key), key, &mut events);
        }
        events
    }
}

fn place(file: &Path, object: &Object) -> String {
    format!("{}: {}", file.display(), object.place)
}

impl Effective {
    fn change_from(&self, old: Option<&Self>, key: &Key, events: &mut Vec<ClusterEvent>) {
        if old.is_none_or(|old| old.content != self.content) {
            let before = old.is_some_and(|old| old.content.value_is_some());
            match self.content.upserted() {
                Some(event) => events.push(event),
                None if before => events.push(deleted(key)),
                None => {}
            }
        }
        let before = old
            .map(|old| old.diagnostics.as_slice())
            .unwrap_or_default();
        if self.diagnostics != before {
            events.push(diagnosed(key, &self.diagnostics));
        }
    }
}

impl Content {
    fn diagnostics(&self) -> &[Diagnostic] {
        match self {
            Self::Service(converted) => &converted.diagnostics,
            Self::Slice(converted) => &converted.diagnostics,
            Self::Node(converted) => &converted.diagnostics,
            Self::ServiceCidr(converted) => &converted.diagnostics,
        }
    }

    fn value_is_some(&self) -> bool {
        match self {
            Self::Service(converted) => converted.value.is_some(),
            Self::Slice(converted) => converted.value.is_some(),
            Self::Node(converted) => converted.value.is_some(),
            Self::ServiceCidr(converted) => converted.value.is_some(),
        }
    }

    fn upserted(&self) -> Option<ClusterEvent> {
        match self {
            Self::Service(converted) => converted.value.clone().map(ClusterEvent::ServiceUpserted),
            Self::Slice(converted) => converted.value.clone().map(ClusterEvent::SliceUpserted),
            Self::Node(converted) => converted.value.clone().map(ClusterEvent::NodeUpserted),
            Self::ServiceCidr(converted) => converted
                .value
                .clone()
                .map(ClusterEvent::ServiceCidrUpserted),
        }
    }
}

fn deleted(key: &Key) -> ClusterEvent {
    match key {
        Key::Service(name) => ClusterEvent::ServiceDeleted(name.clone()),
        Key::Slice(name) => ClusterEvent::SliceDeleted(name.clone()),
        Key::Node(name) => ClusterEvent::NodeDeleted(Arc::clone(name)),
        Key::ServiceCidr(name) => ClusterEvent::ServiceCidrDeleted(Arc::clone(name)),
    }
}

fn diagnosed(key: &Key, diagnostics: &[Diagnostic]) -> ClusterEvent {
    ClusterEvent::Diagnosed {
        object: key.to_string().into(),
        diagnostics: diagnostics.to_vec(),
    }
}
