//! Durations as Go reads and writes them (`time.ParseDuration`, `Duration.String`).

use jiff::SignedDuration;

/// A duration as Go reads it: numbers with units from `ns` to `h`; only zero needs no unit.
pub(super) fn read(text: &str) -> Option<SignedDuration> {
    if matches!(text, "0" | "+0" | "-0") {
        return Some(SignedDuration::ZERO);
    }
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest.is_empty() {
        return None;
    }
    let mut nanoseconds = 0_i128;
    while !rest.is_empty() {
        let whole = digits(&mut rest);
        let fraction = match rest.strip_prefix('.') {
            Some(after) => {
                rest = after;
                digits(&mut rest)
            }
            None => "",
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        // The longest that fits comes first: `ms` begins as `m` does.
        let (unit, size) = UNITS.iter().find(|(unit, _)| rest.starts_with(unit))?;
        rest = &rest[unit.len()..];
        let whole = if whole.is_empty() { "0" } else { whole };
        nanoseconds += whole.parse::<i128>().ok()?.checked_mul(*size)?;
        // What is less than a nanosecond counts for nothing.
        let mut part = *size;
        for digit in fraction.bytes() {
            part /= 10;
            nanoseconds += i128::from(digit - b'0') * part;
        }
        // Go counts nanoseconds in 64 bits.
        if nanoseconds > i128::from(i64::MAX) {
            return None;
        }
    }
    let nanoseconds = i64::try_from(nanoseconds).ok()?;
    Some(SignedDuration::from_nanos(if negative {
        -nanoseconds
    } else {
        nanoseconds
    }))
}

/// Units of Go's durations, in nanoseconds.
const UNITS: [(&str, i128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    // The micro sign, and the Greek letter.
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// The digits that `rest` begins with, which are taken from it.
fn digits<'a>(rest: &mut &'a str) -> &'a str {
    let end = rest.find(|letter: char| !letter.is_ascii_digit());
    let (digits, after) = rest.split_at(end.unwrap_or(rest.len()));
    *rest = after;
    digits
}

/// A duration as Go writes it: `1h0m0s`, `30s`, `250ms`.
pub(super) fn go_text(period: SignedDuration) -> String {
    let sign = if period.is_negative() { "-" } else { "" };
    let whole = period.unsigned_abs();
    let (seconds, nanoseconds) = (whole.as_secs(), whole.subsec_nanos());
    if seconds == 0 && nanoseconds != 0 {
        let (unit, size) = match nanoseconds {
            1_000_000.. => ("ms", 1_000_000),
            1_000.. => ("µs", 1_000),
            _ => ("ns", 1),
        };
        return format!(
            "{sign}{}{unit}",
            fraction(nanoseconds / size, nanoseconds % size, size)
        );
    }
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let rest = format!("{}s", fraction(seconds % 60, nanoseconds, 1_000_000_000));
    match (hours, minutes) {
        (0, 0) => format!("{sign}{rest}"),
        (0, _) => format!("{sign}{minutes}m{rest}"),
        _ => format!("{sign}{hours}h{minutes}m{rest}"),
    }
}

/// `whole` and `part` of `size` (a power of ten), without zeros at the end.
fn fraction(whole: impl Into<u64>, part: u32, size: u32) -> String {
    let whole = whole.into();
    if part == 0 {
        return whole.to_string();
    }
    let digits = size.ilog10() as usize;
    let text = format!("{whole}.{part:0digits$}");
    text.trim_end_matches('0').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written_as_go_does() {
        for text in [
            "0s",
            "30s",
            "1m30s",
            "1h0m0s",
            "24h0m0s",
            "250ms",
            "1.5s",
            "1.5µs",
            "-5s",
            "7ns",
            "1h0m0.001s",
        ] {
            let period = read(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(go_text(period), text);
        }
        for (text, written) in [
            ("0", "0s"),
            ("90s", "1m30s"),
            ("1.5h", "1h30m0s"),
            ("100us", "100µs"),
            ("1h", "1h0m0s"),
            ("1ms1h1h", "2h0m0.001s"),
            (".5s", "500ms"),
            ("+1.s", "1s"),
            ("1\u{3bc}s", "1µs"),
            ("0.1ns", "0s"),
            ("2562047h47m16.854775807s", "2562047h47m16.854775807s"),
        ] {
            assert_eq!(read(text).map(go_text).as_deref(), Some(written), "{text}");
        }
        for text in [
            "",
            "-",
            "30",
            "s",
            "1x",
            "1d",
            "1h30",
            ".s",
            "--1s",
            " 1s",
            "1 s",
            "2562047h47m16.854775808s",
            "9999999h",
            "99999999999999999999999999999999999999999999s",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
