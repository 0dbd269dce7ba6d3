//! The text of tables as words. Knows where a word ends, and nothing of what words mean.

use anyhow::{Context as _, Result, ensure};

/// Words that are still to be read, each with its line, from 1.
#[derive(Debug, Clone)]
pub struct Words<'t> {
    words: Vec<(usize, &'t str)>,
    next: usize,
}

/// A word of its own wherever it stands outside of quotes. The end of a line is one.
const ALONE: [char; 6] = ['{', '}', ',', ';', '=', '\n'];

impl<'t> Words<'t> {
    /// Those of `text`; what is between quotes is one word, with its quotes.
    pub fn of(text: &'t str) -> Self {
        let mut words = Vec::new();
        let (mut line, mut rest) = (1, text);
        while let Some(first) = rest.chars().next() {
            // `!=` is one.
            let is_alone = ALONE.contains(&first);
            let end = if is_alone {
                first.len_utf8()
            } else if first == '"' {
                rest[1..].find('"').map_or(rest.len(), |end| end + 2)
            } else if first.is_whitespace() {
                rest = &rest[first.len_utf8()..];
                continue;
            } else if rest.starts_with("!=") {
                2
            } else {
                let ends = |one: char| one.is_whitespace() || ALONE.contains(&one) || one == '"';
                rest.find(ends).unwrap_or(rest.len())
            };
            words.push((line, &rest[..end]));
            rest = &rest[end..];
            if first == '\n' {
                line += 1;
            }
        }
        Self { words, next: 0 }
    }

    /// The next word, which stays.
    pub fn peek(&self) -> Option<&'t str> {
        Some(self.words.get(self.next)?.1)
    }

    /// The next word.
    pub fn word(&mut self) -> Result<&'t str> {
        let word = self.peek().context("the text ends too early")?;
        self.next += 1;
        Ok(word)
    }

    /// The line of the next word.
    pub fn line(&self) -> usize {
        let at = self.next.min(self.words.len().saturating_sub(1));
        self.words.get(at).map_or(0, |(line, _)| *line)
    }

    /// Takes the next word if it is `word`.
    pub fn take(&mut self, word: &str) -> bool {
        let found = self.peek() == Some(word);
        self.next += usize::from(found);
        found
    }

    /// Takes these words if they come next, all of them.
    pub fn take_all(&mut self, words: &str) -> bool {
        let mut ahead = self.clone();
        let found = words.split(' ').all(|word| ahead.take(word));
        if found {
            self.next = ahead.next;
        }
        found
    }

    /// The next word must be `word`.
    pub fn expect(&mut self, word: &str) -> Result<()> {
        let found = self.word()?;
        ensure!(found == word, "{word:?} should stand in place of {found:?}");
        Ok(())
    }

    /// Passes over ends of lines.
    pub fn skip_lines(&mut self) {
        while self.take("\n") {}
    }

    /// Passes over the rest of the line; returns its words.
    pub fn rest_of_line(&mut self) -> Vec<&'t str> {
        let mut rest = Vec::new();
        while let Some(word) = self.peek().filter(|word| *word != "\n") {
            self.next += 1;
            rest.push(word);
        }
        rest
    }
}
