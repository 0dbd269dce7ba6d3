//! Which objects of one kind have been told, so that what is gone can be told as well. Pure.
//! Keeps names, never objects.

mod room;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use proxy_model::{ClusterEvent, Diagnostic};
use room::Room;

use super::{
    counters::{KindCounters, count},
    decode::Malformed,
    kind::Followed,
};
use crate::cluster::{Update, convert::Converted, names::Names, object::Object};

/// The objects of kind `F` that have been told.
pub(super) struct Known<F: Followed> {
    objects: HashMap<F::Key, Told>,
    names: Names,
    /// Grows with every list.
    round: u32,
    room: Room,
}

#[derive(Debug, Default)]
struct Told {
    /// The model has a value of it.
    value: bool,
    /// The model has diagnostics of it.
    diagnosed: bool,
    /// When it was last seen.
    round: u32,
    /// It, and what is in it.
    weight: usize,
}

impl<F: Followed> Known<F> {
    /// Nothing yet, and no more than `most` objects, ports and endpoints ever.
    pub(super) fn new(most: usize) -> Self {
        Self {
            objects: HashMap::new(),
            names: Names::default(),
            round: 0,
            room: Room::new(F::KIND, most),
        }
    }

    /// How many objects are left out because there are too many.
    pub(super) fn left_out(&self) -> usize {
        self.room.left_out()
    }

    /// Whether a list would find room for what was left out.
    pub(super) fn wants_list(&self) -> bool {
        self.room.is_back()
    }

    /// Says whether objects are left out, if that has changed.
    pub(super) fn tell_room(&mut self, updates: &mut Vec<Update>) {
        let Some(news) = self.room.news() else {
            return;
        };
        let object: Arc<str> = format!("{}List", F::KIND).into();
        let diagnostics = news.into_iter().map(|message| Diagnostic {
            object: Arc::clone(&object),
            field: "items".to_owned(),
            message,
        });
        updates.push(plain(ClusterEvent::Diagnosed {
            diagnostics: diagnostics.collect(),
            object: Arc::clone(&object),
        }));
    }

    /// A list begins. What it does not name is gone, once it is complete.
    pub(super) fn begin_list(&mut self) {
        self.round += 1;
        self.room.begin_list();
    }

    /// The list is complete.
    pub(super) fn end_list(&mut self, updates: &mut Vec<Update>) {
        let round = self.round;
        self.objects.retain(|key, told| {
            let present = told.round == round;
            if !present {
                self.room.give(told.weight);
                forget::<F>(key, told, updates);
            }
            present
        });
        self.objects.shrink_to(2 * self.objects.len());
        self.tell_room(updates);
    }

    /// An object is there, in this form.
    pub(super) fn seen(
        &mut self,
        object: Result<F::Object, Malformed>,
        counters: &KindCounters,
        updates: &mut Vec<Update>,
    ) {
        counters.events.fetch_add(1, Relaxed);
        match object {
            Ok(object) => self.upsert(&object, updates),
            Err(malformed) => {
                count(&counters.decode_failures);
                self.keep(&malformed, updates);
            }
        }
    }

    fn upsert(&mut self, object: &F::Object, updates: &mut Vec<Update>) {
        let Converted { value, diagnostics } = F::convert(object, &mut self.names);
        // The value's own, where there is one: it is held anyway.
        let key = match &value {
            Some(value) => Some(F::key_of(value)),
            None => F::key(object.metadata(), &mut self.names),
        };
        let Some(key) = key else {
            return;
        };
        let before = self.objects.get(&key);
        let weight = 1 + value.as_ref().map_or(0, F::parts);
        if !self.room.take(&key, before.map(|told| told.weight), weight) {
            return;
        }
        let was_diagnosed = before.is_some_and(|told| told.diagnosed);
        let had_value = before.is_some_and(|told| told.value);
        let told = Told {
            value: value.is_some(),
            diagnosed: !diagnostics.is_empty(),
            round: self.round,
            weight,
        };
        match value {
            Some(value) => updates.push(Update {
                event: F::upserted(value),
                trigger: F::trigger(object),
            }),
            // It has become another proxy's, or headless.
            None if had_value => updates.push(plain(F::deleted(key.clone()))),
            None => {}
        }
        if told.diagnosed || was_diagnosed {
            updates.push(plain(diagnosed::<F>(&key, diagnostics)));
        }
        self.objects.insert(key, told);
    }

    /// Of an object that cannot be decoded, what was told before stays in force.
    fn keep(&mut self, malformed: &Malformed, updates: &mut Vec<Update>) {
        let kind = F::KIND;
        let Some(key) = F::key(&malformed.metadata(), &mut self.names) else {
            let Malformed { field, message, .. } = malformed;
            tracing::warn!(%kind, field, reason = message, "object without a name skipped");
            return;
        };
        let before = self.objects.get(&key).map(|told| told.weight);
        let weight = before.unwrap_or(1);
        if !self.room.take(&key, before, weight) {
            return;
        }
        let told = self.objects.entry(key.clone()).or_default();
        told.weight = weight;
        told.diagnosed = true;
        told.round = self.round;
        let kept = if told.value {
            "its last good form stays in force"
        } else {
            "it is left out"
        };
        let diagnostic = Diagnostic {
            object: format!("{kind} {key}").into(),
            field: malformed.field.clone(),
            message: format!("cannot be read: {}: {kept}", malformed.message),
        };
        updates.push(plain(diagnosed::<F>(&key, vec![diagnostic])));
    }

    /// An object is gone; `object` is its last form.
    pub(super) fn gone(
        &mut self,
        object: Result<F::Object, Malformed>,
        counters: &KindCounters,
        updates: &mut Vec<Update>,
    ) {
        counters.events.fetch_add(1, Relaxed);
        let key = match object {
            Ok(object) => F::key(object.metadata(), &mut self.names),
            Err(malformed) => F::key(&malformed.metadata(), &mut self.names),
        };
        let Some(key) = key else {
            return;
        };
        self.room.forget(&key);
        if let Some((key, told)) = self.objects.remove_entry(&key) {
            self.room.give(told.weight);
            forget::<F>(&key, &told, updates);
        }
    }
}

fn forget<F: Followed>(key: &F::Key, told: &Told, updates: &mut Vec<Update>) {
    if told.value {
        updates.push(plain(F::deleted(key.clone())));
    }
    if told.diagnosed {
        updates.push(plain(diagnosed::<F>(key, Vec::new())));
    }
}

fn diagnosed<F: Followed>(key: &F::Key, diagnostics: Vec<Diagnostic>) -> ClusterEvent {
    ClusterEvent::Diagnosed {
        object: format!("{} {key}", F::KIND).into(),
        diagnostics,
    }
}

fn plain(event: ClusterEvent) -> Update {
    Update {
        event,
        trigger: None,
    }
}
