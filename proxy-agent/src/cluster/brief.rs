//! Texts that others wrote, objects and servers, as far as anybody reads them: they may be of any
//! size, and end up in logs, in `state` and in memory.

/// Characters that are kept.
const LONGEST: usize = 300;

/// The beginning of `text` on one line; says how long it is, if that is not all.
pub fn brief(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let mut beginning: String = text.chars().take(LONGEST).map(plain).collect();
    if beginning.len() < text.len() && text.chars().nth(LONGEST).is_some() {
        beginning = format!("{beginning}… ({} bytes)", text.len());
    }
    beginning
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_short_is_kept_and_the_rest_is_cut_off() {
        assert_eq!(brief("as it is: ü"), "as it is: ü");
        assert_eq!(brief("two\nlines\u{1b}[31m"), "two lines [31m");
        let whole = "ü".repeat(LONGEST);
        assert_eq!(brief(&whole), whole);
        let long = brief(&"ü".repeat(1 << 20));
        assert!(long.ends_with("ü… (2097152 bytes)"), "{long}");
        assert!(long.chars().count() < LONGEST + 30);
    }
}
