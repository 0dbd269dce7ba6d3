//! What `iptables-save` shows, in the words in which our rules are written, so that both can be compared as
//! text. Pure.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use crate::{rule::Rule, table::Table};

/// Tables with their chains and rules, as far as they are of interest: tables that are written.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Saved {
    /// By table and chain.
    pub tables: BTreeMap<Table, HashMap<Arc<str>, Vec<Rule>>>,
}

impl Saved {
    /// Reads what `iptables-save` has written, if it is whole: the nft flavour leaves out a table, without an error, in
    /// which others have rules that only `nft` can show.
    pub fn read_whole(text: &str) -> Result<Self, String> {
        let mut is_open = false;
        for line in text.lines() {
            if line.starts_with('#') && line.contains("is incompatible") {
                let what = line.trim_start_matches(['#', ' ']);
                return Err(format!(
                    "it cannot show all rules ({what}): somebody has rules there that only `nft` can show; move them to \
                     a table of their own, or use nftables"
                ));
            }
            match line.chars().next() {
                None | Some('#') => {}
                Some('*') => is_open = true,
                Some(':' | '-' | '[') if is_open => {}
                _ if is_open && line == "COMMIT" => is_open = false,
                _ => return Err(format!("it printed {line:?} in the place of tables")),
            }
        }
        if is_open {
            return Err("it did not print a table to its end".to_owned());
        }
        Ok(Self::read(text))
    }

    /// The same, of what is known to be whole.
    pub fn read(text: &str) -> Self {
        let mut saved = Self::default();
        let mut table = None;
        for line in text.lines() {
            if let Some(name) = line.strip_prefix('*') {
                table = Table::named(name.trim());
                if let Some(table) = table {
                    saved.tables.entry(table).or_default();
                }
                continue;
            }
            let Some(chains) = table.and_then(|table| saved.tables.get_mut(&table)) else {
                continue;
            };
            if let Some(rest) = line.strip_prefix(':') {
                let name = rest.split(' ').next().unwrap_or_default();
                chains.entry(name.into()).or_default();
            } else if let Some((chain, rule)) = line.strip_prefix("-A ").map(split) {
                chains
                    .entry(chain.into())
                    .or_default()
                    .push(canonical(rule));
            }
        }
        saved
    }

    /// The rules of a chain, if it is there.
    pub fn chain(&self, table: Table, name: &str) -> Option<&[Rule]> {
        Some(self.tables.get(&table)?.get(name)?)
    }

    /// Where rules lead that are none of our own, by their chain and themselves.
    pub fn led_to(&self, table: Table, is_own: impl Fn(&str, &Rule) -> bool) -> BTreeSet<&str> {
        let chains = self.tables.get(&table).into_iter().flatten();
        let rules = chains.flat_map(|(name, rules)| rules.iter().map(move |rule| (name, rule)));
        let others = rules.filter(|(name, rule)| !is_own(name, rule));
        others.filter_map(|(_, rule)| rule.target()).collect()
    }
}

fn split(text: &str) -> (&str, &str) {
    text.split_once(' ').unwrap_or((text, ""))
}

/// A rule in one spelling, whichever version of whichever flavour has shown it, or wrote it.
pub fn canonical(rule: &str) -> Rule {
    let mut words = words(rule).into_iter().peekable();
    let mut text = String::with_capacity(rule.len());
    let mut last = String::new();
    while let Some(word) = words.next() {
        // What goes without saying.
        match (&*word, words.peek().map(|next| &**next)) {
            ("--mask", Some("255.255.255.255" | "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"))
            | ("--reject-with", Some("icmp-port-unreachable" | "icmp6-port-unreachable")) => {
                words.next();
                continue;
            }
            ("--rsource", _) => continue,
            _ => {}
        }
        if !text.is_empty() {
            text.push(' ');
        }
        match &*last {
            "-s" | "-d" => text.push_str(single(&word)),
            "--probability" => text.push_str(&chance(&word)),
            _ if word.is_empty() || word.contains([' ', '"', '\\']) => {
                text.push('"');
                for c in word.chars() {
                    text.extend(matches!(c, '"' | '\\').then_some('\\'));
                    text.push(c);
                }
                text.push('"');
            }
            _ => text.push_str(&word),
        }
        last = word;
    }
    Rule::read(text)
}

/// A single address is shown with its length.
fn single(address: &str) -> &str {
    let length = if address.contains(':') { "/128" } else { "/32" };
    address.strip_suffix(length).unwrap_or(address)
}

/// The kernel keeps a chance as a fraction of 2^31, and it is shown as that.
fn chance(text: &str) -> String {
    const WHOLE: f64 = 2_147_483_648.0;
    match text.parse::<f64>() {
        Ok(chance) => format!("{}/2^31", (chance * WHOLE).round()),
        Err(_) => text.to_owned(),
    }
}

/// The words of a line, without quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let (mut quoted, mut any) = (false, false);
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => word.extend(chars.next()),
            '"' => {
                quoted = !quoted;
                any = true;
            }
            ' ' if !quoted => {
                if any || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                any = false;
            }
            c => word.push(c),
        }
    }
    if any || !word.is_empty() {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn same(ours: &str, shown: &str) {
        assert_eq!(canonical(ours), canonical(shown));
    }

    #[test]
    fn one_rule_has_one_spelling() {
        same(
            "-d 10.96.0.1 -p tcp -j REJECT",
            "-d 10.96.0.1/32 -p tcp -j REJECT --reject-with icmp-port-unreachable",
        );
        same("-d fd00::1 -j A", "-d fd00::1/128 -j A");
        same(
            "-m recent --set --name X -m tcp -j DNAT --to-destination 10.0.0.1:80",
            "-m recent --set --name X --mask 255.255.255.255 --rsource -m tcp -j DNAT --to-destination 10.0.0.1:80",
        );
        same(
            "-m statistic --mode random --probability 0.3333333333 -j A",
            "-m statistic --mode random --probability 0.33333333349 -j A",
        );
        same(
            "-m comment --comment plain -j A",
            "-m comment --comment \"plain\" -j A",
        );
        same(
            "-m nfacct --nfacct-name  x -j DROP",
            "-m nfacct --nfacct-name x -j DROP",
        );
    }

    #[test]
    fn what_differs_stays_different() {
        for (one, other) in [
            ("-d 10.96.0.0/16 -j A", "-d 10.96.0.0 -j A"),
            (
                "-m comment --comment \"a b\" -j A",
                "-m comment --comment \"a c\" -j A",
            ),
            (
                "-m statistic --mode random --probability 0.5000000000 -j A",
                "-m statistic --mode random --probability 0.3333333333 -j A",
            ),
            ("-j REJECT", "-j REJECT --reject-with tcp-reset"),
        ] {
            assert_ne!(canonical(one), canonical(other));
        }
    }

    #[test]
    fn chains_without_rules_and_tables_of_others_are_told_apart() {
        let text = "*raw\n:X - [0:0]\nCOMMIT\n*nat\n:OUTPUT ACCEPT [1:2]\n:Y - [0:0]\n-A OUTPUT -j Y\nCOMMIT\n";
        let saved = Saved::read(text);
        assert_eq!(saved.tables.len(), 1);
        assert_eq!(saved.chain(Table::Nat, "Y"), Some(&[][..]));
        assert_eq!(
            saved.chain(Table::Nat, "OUTPUT").unwrap()[0].as_str(),
            "-j Y"
        );
        assert_eq!(saved.chain(Table::Nat, "X"), None);
    }

    #[test]
    fn what_is_not_whole_is_told_and_not_taken_for_nothing() {
        let why = |text| Saved::read_whole(text).unwrap_err();
        let incompatible = "# Table `nat' is incompatible, use 'nft' tool.\n";
        assert!(why(incompatible).contains("Table `nat' is incompatible"));
        assert!(why("*nat\n:OUTPUT ACCEPT [0:0]\n-A OUT").contains("to its end"));
        assert!(why("garbage\n").contains("\"garbage\""));
        assert!(why("*nat\ngarbage\nCOMMIT\n").contains("\"garbage\""));
        let whole = "# Generated\n*nat\n:OUTPUT ACCEPT [0:0]\n[0:0] -A OUTPUT -j Y\nCOMMIT\n# Completed\n\n";
        assert_eq!(Saved::read_whole(whole), Ok(Saved::read(whole)));
        assert_eq!(Saved::read_whole(""), Ok(Saved::default()));
    }

    #[test]
    fn a_rule_of_others_can_be_written_as_it_was_read() {
        for rule in [
            r#"-m comment --comment "was -j OLD before" -j NEW"#,
            r#"-m comment --comment "he said \"hi there\" -j Z" -j NEW"#,
            r#"-m comment --comment "a\"b" -g NEW"#,
            r#"-m comment --comment "a \\" -j NEW"#,
        ] {
            let read = canonical(rule);
            assert_eq!(read.as_str(), rule);
            assert_eq!(read.target(), Some("NEW"), "{rule}");
        }
        assert_eq!(canonical("-m comment --comment \"-j A\"").target(), None);
    }
}
