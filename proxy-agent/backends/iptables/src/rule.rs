//! One rule as text: what `iptables-restore` takes after `-A CHAIN`, in the order in which `iptables-save`
//! shows it. Pure.

use std::fmt;

use ipnet::IpNet;
use proxy_model::Protocol;

use crate::names;

/// A comment has room for so many bytes (the kernel's `XT_MAX_COMMENT_LEN`, less its end).
const LONGEST_COMMENT: usize = 255;

/// A rule, without the chain that it is in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rule(String);

impl Rule {
    /// One that was read.
    pub fn read(text: String) -> Self {
        Self(text)
    }

    /// The chain that it leads to, or what else it does.
    pub fn target(&self) -> Option<&str> {
        let mut is_quoted = false;
        let mut is_next = false;
        for word in self.0.split(' ') {
            if is_next {
                return Some(word);
            }
            is_next = !is_quoted && matches!(word, "-j" | "-g");
            is_quoted ^= quotes(word) % 2 == 1;
        }
        None
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// How many quotes begin or end in a word.
fn quotes(word: &str) -> usize {
    let mut is_escaped = false;
    let quotes = word.chars().filter(|c| {
        let counts = *c == '"' && !is_escaped;
        is_escaped = *c == '\\' && !is_escaped;
        counts
    });
    quotes.count()
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What packets a rule is for. Options come out in the order in which `iptables-save` has them; matches in
/// the order in which they were added.
#[derive(Debug, Clone, Default)]
pub struct Match {
    source: String,
    destination: String,
    interface: String,
    protocol: &'static str,
    matches: String,
}

impl Match {
    /// All packets.
    pub fn all() -> Self {
        Self::default()
    }

    /// From there; `not`: from anywhere else.
    pub fn source(mut self, not: bool, net: IpNet) -> Self {
        self.source = format!("{}-s {} ", negation(not), address(net));
        self
    }

    /// To there; `not`: to anywhere else.
    pub fn destination(mut self, not: bool, net: IpNet) -> Self {
        self.destination = format!("{}-d {} ", negation(not), address(net));
        self
    }

    /// That arrived on an interface; a name that ends with `+` stands for all that begin so.
    pub fn interface(mut self, not: bool, name: &str) -> Self {
        self.interface = format!("{}-i {name} ", negation(not));
        self
    }

    /// Of this protocol.
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.protocol = names::protocol(protocol);
        self
    }

    /// Says why. What could end the comment, or the line, is not in it.
    pub fn comment(self, text: &str) -> Self {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let safe = |c: char| plain(c) || "/:.>;, ".contains(c) || c == '[' || c == ']';
        let mut comment: String = text
            .chars()
            .map(|c| if safe(c) { c } else { '_' })
            .collect();
        // Of ASCII only, by now.
        comment.truncate(LONGEST_COMMENT);
        let quote = if comment.contains(' ') { "\"" } else { "" };
        self.with(&format!("-m comment --comment {quote}{comment}{quote}"))
    }

    /// To this port of the protocol that was named.
    pub fn port(self, port: u16) -> Self {
        let protocol = self.protocol;
        self.with(&format!("-m {protocol} --dport {port}"))
    }

    /// With a further match, as it is written.
    pub fn with(mut self, text: &str) -> Self {
        self.matches.push_str(text);
        self.matches.push(' ');
        self
    }

    /// Goes to `target`, which may have options.
    pub fn jump(self, target: &str) -> Rule {
        self.rule(Some(target))
    }

    /// Does nothing with them.
    pub fn noted(self) -> Rule {
        self.rule(None)
    }

    fn rule(self, target: Option<&str>) -> Rule {
        let mut text = self.source + &self.destination + &self.interface;
        if !self.protocol.is_empty() {
            text.extend(["-p ", self.protocol, " "]);
        }
        text += &self.matches;
        match target {
            Some(target) => text.extend(["-j ", target]),
            None => text.truncate(text.trim_end().len()),
        }
        Rule(text)
    }
}

const fn negation(not: bool) -> &'static str {
    if not { "! " } else { "" }
}

/// A single address without its length.
fn address(net: IpNet) -> String {
    if net.prefix_len() == net.max_prefix_len() {
        net.addr().to_string()
    } else {
        net.trunc().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_come_in_the_order_in_which_they_are_shown() {
        let rule = Match::all()
            .comment("shop/web:http cluster IP")
            .protocol(Protocol::Tcp)
            .port(80)
            .destination(false, "10.96.0.1/32".parse().unwrap())
            .source(true, "10.244.0.0/16".parse().unwrap())
            .jump("KUBE-MARK-MASQ");
        assert_eq!(
            rule.as_str(),
            "! -s 10.244.0.0/16 -d 10.96.0.1 -p tcp -m comment --comment \"shop/web:http cluster IP\" \
             -m tcp --dport 80 -j KUBE-MARK-MASQ"
        );
    }

    #[test]
    fn a_name_cannot_end_its_comment_or_its_line() {
        let hostile = "a\" -j ACCEPT\nCOMMIT\\é".to_owned() + &"x".repeat(300);
        let rule = Match::all().comment(&hostile).noted();
        let text = rule.as_str();
        assert!(
            text.starts_with("-m comment --comment \"a_ -j ACCEPT_COMMIT__x"),
            "{text}"
        );
        assert_eq!(text.matches('"').count(), 2);
        assert!(text.ends_with('"') && text.len() == 255 + 2 + "-m comment --comment ".len());
    }
}
