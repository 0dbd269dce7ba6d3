//! Fields that hold lists. `tracing` has no such values: they are written down as JSON, and become
//! arrays in lines of JSON. Knows no line's meaning.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tracing::{Event, Subscriber};
use tracing_subscriber::{
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    registry::LookupSpan,
};

/// Their names. Where one of them is no list, it stays as it is.
const FIELDS: [&str; 6] = [
    "capabilities",
    "changed",
    "lacks",
    "mistakes",
    "nodes",
    "services",
];

/// The value of a field that holds a list.
pub fn list(items: impl IntoIterator<Item = impl ToString>) -> String {
    let items = items.into_iter().map(|item| item.to_string().into());
    Value::Array(items.collect()).to_string()
}

/// Lines of JSON as `0` writes them, with arrays.
pub(super) struct Lists<F>(pub F);

impl<S, N, F> FormatEvent<S, N> for Lists<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut names = event.metadata().fields().iter().map(|field| field.name());
        if !names.any(|name| FIELDS.contains(&name)) {
            return self.0.format_event(context, writer, event);
        }
        let mut line = String::new();
        self.0
            .format_event(context, Writer::new(&mut line), event)?;
        match with_arrays(&line) {
            Some(line) => writeln!(writer, "{line}"),
            None => writer.write_str(&line),
        }
    }
}

/// A line, in the order in which its fields are documented.
#[derive(Serialize, Deserialize)]
struct Line {
    timestamp: Value,
    level: Value,
    fields: Map<String, Value>,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

/// `None` if that is no line as it should be.
fn with_arrays(line: &str) -> Option<String> {
    let mut line: Line = serde_json::from_str(line).ok()?;
    for name in FIELDS {
        if let Some(value @ Value::String(_)) = line.fields.get_mut(name)
            && let Some(list) = value
                .as_str()
                .and_then(|text| serde_json::from_str(text).ok())
        {
            *value = Value::Array(list);
        }
    }
    serde_json::to_string(&line).ok()
}

#[cfg(test)]
mod tests {
    use std::{
        io::{self, Write},
        sync::{Arc, Mutex},
    };

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lists_are_arrays_and_all_else_is_as_it_was() {
        let kept = Kept::default();
        let writer = kept.clone();
        let subscriber = tracing_subscriber::fmt()
            .json()
            .map_event_format(Lists)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            let names = ["shop/a \"b\"", "shop/c"];
            tracing::info!(services = %list(names), reason = "[1]", text = "x", "told");
            tracing::info!(lacks = %list([""; 0]), services = 3, "told");
            tracing::info!(services = "as it comes", "told");
            tracing::info!(reason = "[1]", "told");
        });
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        let fields: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["fields"].clone())
            .collect();
        let expected = serde_json::json!([
            {"message": "told", "services": ["shop/a \"b\"", "shop/c"], "reason": "[1]", "text": "x"},
            {"message": "told", "lacks": [], "services": 3},
            {"message": "told", "services": "as it comes"},
            {"message": "told", "reason": "[1]"},
        ]);
        assert_eq!(Value::Array(fields), expected);
        for line in text.lines() {
            assert!(line.starts_with("{\"timestamp\":"), "{line}");
            assert!(line.contains("\"target\":"), "{line}");
        }
    }
}
