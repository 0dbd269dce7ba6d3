//! Tables in the manner of `kubectl get`.

use comfy_table::{Table, presets};

/// An empty table with these columns.
pub(super) fn new(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table
}

/// A table with these columns and rows, as text.
pub(super) fn of<const COLUMNS: usize>(
    header: &[&str; COLUMNS],
    rows: impl Iterator<Item = [String; COLUMNS]>,
) -> String {
    let mut table = new(header);
    table.add_rows(rows);
    finish(&table)
}

/// Its lines, without trailing spaces.
pub(super) fn finish(table: &Table) -> String {
    table
        .lines()
        .map(|line| line.trim_end().to_owned() + "\n")
        .collect()
}

/// Values that follow a word: `10.0.0.1, 10.0.0.2`.
pub(super) fn list<T: ToString>(items: &[T]) -> String {
    let items: Vec<_> = items.iter().map(ToString::to_string).collect();
    items.join(", ")
}
