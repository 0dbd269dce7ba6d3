#!/bin/sh
# What cargo calls in place of rustc for the packages of this workspace, as `cargo xtask fuzz` builds
# them. The fuzzer learns from what it sees of our own code; all below is that of the tests.
set -eu
previous=
for argument do
    case "$previous $argument" in
    # Not build scripts, nor what they are made of: they run without a fuzzer.
    "--crate-name proxy_"* | "--crate-name objects" | "--crate-name model" | "--crate-name wire" \
        | "--crate-name packets")
        # Coverage, and the operands of comparisons, so that the fuzzer learns what to write.
        set -- "$@" --cfg fuzzing -Copt-level=1 \
            -Cpasses=sancov-module \
            -Cllvm-args=-sanitizer-coverage-level=4 \
            -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
            -Cllvm-args=-sanitizer-coverage-pc-table \
            -Cllvm-args=-sanitizer-coverage-trace-compares
        break
        ;;
    esac
    previous=$argument
done
exec "$@"
