//! What commands need of a machine, as a set.
//!
//! Each command says what it needs (`needs` of its options); which packages that takes is in
//! [`provisions`](super::provisions). A command asks for what it uses and for nothing else: who
//! wants to see the demo is not to wait for what some suite compiles Python with.

/// What a command needs from the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs(u16);

impl Needs {
    /// Nothing beyond Rust.
    pub(crate) const NONE: Self = Self(0);
    /// A toolchain for the BPF target.
    pub(crate) const TOOLCHAIN: Self = Self(1);
    /// That toolchain's clippy.
    pub(crate) const LINTER: Self = Self(1 << 1);
    /// Something that reads the kernel object.
    pub(crate) const DISASSEMBLER: Self = Self(1 << 2);
    /// What throw-away nodes and pods are made with.
    pub(crate) const NODES: Self = Self(1 << 3);
    /// What the demo hands out commands of, to look around with.
    pub(crate) const LOOKING: Self = Self(1 << 4);
    /// What writes and reads rules of nftables.
    pub(crate) const NFT: Self = Self(1 << 13);
    /// What writes and reads rules of iptables.
    pub(crate) const IPTABLES: Self = Self(1 << 14);
    /// Rules in the kernel that are not ours: what suites put there, and read.
    pub(crate) const RULES: Self = Self(1 << 5).and(Self::NFT).and(Self::IPTABLES);
    /// What a client of the node API in Python takes.
    pub(crate) const PYTHON: Self = Self(1 << 6);
    /// qemu and kernels.
    pub(crate) const GUESTS: Self = Self(1 << 7);
    /// A toolchain for Windows, and wine where it can be installed: what building for it takes,
    /// and running that.
    pub(crate) const WINDOWS: Self = Self(1 << 8);
    /// A C++ compiler.
    pub(crate) const FUZZER: Self = Self(1 << 9);
    /// What makes a bare root.
    pub(crate) const FRESH: Self = Self(1 << 10);
    /// What renders the chart, and what knows whether the result will do.
    pub(crate) const CHART: Self = Self(1 << 11);
    /// A toolchain for the static program of an image.
    pub(crate) const IMAGE: Self = Self(1 << 12);

    /// The real agent on throw-away nodes.
    pub(crate) const DEMO: Self = Self::TOOLCHAIN.and(Self::NODES);
    /// The same, and rules to compare with.
    pub(crate) const BENCH: Self = Self::DEMO.and(Self::NFT).and(Self::IPTABLES);
    /// What most suites need on a kernel, whichever.
    pub(crate) const SUITES: Self = Self::DEMO.and(Self::LOOKING).and(Self::RULES);
    /// Everything that is done on this machine's own kernel.
    pub(crate) const HOST: Self = Self::SUITES
        .and(Self::PYTHON)
        .and(Self::CHART)
        .and(Self::IMAGE);
    /// Everything that CI needs.
    pub(crate) const ALL: Self = Self::HOST
        .and(Self::LINTER)
        .and(Self::GUESTS)
        .and(Self::WINDOWS)
        .and(Self::FUZZER);

    /// Both sets.
    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// This set, with the other one where `wanted`.
    pub(crate) const fn and_if(self, wanted: bool, other: Self) -> Self {
        if wanted { self.and(other) } else { self }
    }

    /// Whether all of `other` is in this set.
    pub(crate) const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// What a suite needs, by its name.
pub(crate) fn of_suite(suite: &str) -> Needs {
    match suite {
        // The one that speaks to the node API in another language.
        "outside" => Needs::TOOLCHAIN.and(Needs::PYTHON),
        // Command lines that the chart makes are given to the agent.
        "chart" => Needs::TOOLCHAIN.and(Needs::CHART),
        "image" => Needs::SUITES.and(Needs::IMAGE),
        "installed" => Needs::SUITES.and(Needs::CHART).and(Needs::IMAGE),
        "demo" => Needs::DEMO.and(Needs::LOOKING),
        "bench" => Needs::BENCH,
        _ => Needs::SUITES,
    }
}

/// What the commands that run a file of this repository see to: what it may use of a machine.
/// `None` for files of commands that install what they want by themselves, and of packages whose
/// programs only mention others.
pub(crate) fn seen_to(path: &str) -> Option<Needs> {
    // A list of what there is to ask for, each by the suite that does.
    if path == "tests/harness/src/requires.rs" {
        return None;
    }
    if let Some(rest) = path.strip_prefix("tests/suites/") {
        let suite = rest.split(['/', '.']).next().unwrap_or_default();
        // Virtual servers and kinds of devices are tested in guests, and skipped elsewhere.
        let is_for_guests = suite == "leftovers" || rest == "edge/kinds.rs";
        return Some(of_suite(suite).and_if(is_for_guests, Needs::GUESTS));
    }
    match path {
        "tests/demo/suite.rs" => Some(of_suite("demo")),
        // Handed out with `--keep`, which is why that needs more.
        "tests/demo/src/look_around.rs" => Some(Needs::DEMO.and(Needs::LOOKING)),
        _ if path.starts_with("tests/bench/") => Some(Needs::BENCH),
        _ if path.starts_with("tests/harness/src/conformance/") => Some(of_suite("conformance")),
        _ => ["tests/demo/", "tests/harness/"]
            .iter()
            .any(|dir| path.starts_with(dir))
            .then_some(Needs::DEMO),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_its_parts_and_no_others() {
        assert!(Needs::HOST.has(Needs::PYTHON) && !Needs::DEMO.has(Needs::PYTHON));
        assert!(Needs::ALL.has(Needs::HOST) && Needs::HOST.has(Needs::NONE));
        assert!(
            !Needs::ALL.has(Needs::FRESH),
            "a bare root is made by one command alone"
        );
        assert_eq!(Needs::DEMO.and_if(false, Needs::LOOKING), Needs::DEMO);
        assert!(Needs::DEMO.and_if(true, Needs::LOOKING).has(Needs::LOOKING));
    }

    #[test]
    fn files_belong_to_what_runs_them() {
        assert_eq!(
            seen_to("tests/suites/outside.rs"),
            Some(of_suite("outside"))
        );
        assert_eq!(
            seen_to("tests/suites/conntrack/rig.rs"),
            Some(Needs::SUITES)
        );
        assert_eq!(seen_to("tests/demo/src/stage.rs"), Some(Needs::DEMO));
        assert_eq!(seen_to("xtask/src/setup/apt.rs"), None);
    }
}
