//! Build facts that `cargo xtask` and the build scripts share: where things are, which
//! toolchain compiles for the BPF target, and how the kernel object is made.
//!
//! This library stays light (the standard library and `anyhow`), because every build of
//! `proxy-agent` compiles it first. The commands themselves are in the binary, and nothing
//! here may depend on them.

pub mod chart_tools;
pub mod ebpf;
pub mod environment;
pub mod paths;
pub mod toolchain;

/// When this environment variable is set to `1`, the build script of `proxy-agent` embeds an
/// empty kernel object instead of compiling one, so that everything which never loads it can be
/// built, linted and tested without a BPF toolchain.
pub const SKIP_EBPF_ENV: &str = "CULVERT_SKIP_EBPF";

/// Whether [`SKIP_EBPF_ENV`] asks for an empty kernel object.
pub fn skips_ebpf() -> bool {
    std::env::var_os(SKIP_EBPF_ENV).is_some_and(|value| value == "1")
}
