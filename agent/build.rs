//! Tells the agent where the kernel programs are: `MESHGATE_EBPF_OBJECT` (set by `cargo xtask`), else an empty file, so
//! that plain `cargo check` and `cargo test` need no BPF toolchain.

use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-env-changed=MESHGATE_EBPF_OBJECT");
    let object = std::env::var_os("MESHGATE_EBPF_OBJECT").map_or_else(empty, PathBuf::from);
    println!("cargo::rerun-if-changed={}", object.display());
    println!("cargo::rustc-env=MESHGATE_EMBEDDED_OBJECT={}", object.display());
}

fn empty() -> PathBuf {
    let path = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("none.o");
    std::fs::write(&path, []).expect("OUT_DIR is writable");
    path
}
