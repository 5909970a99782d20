//! What the head of a binary tells: for which processor it is, and whether it needs a loader, which the image lacks.

use anyhow::{Context as _, bail};
use object::elf::PT_INTERP;
use object::read::elf::{ElfFile64, ProgramHeader as _};
use object::{Architecture, Endianness, Object as _};

/// The architecture of all these binaries, as OCI names it (which is as Go does).
///
/// # Errors
/// When one is not static, of an unknown architecture, or of another than the first.
pub(super) fn common_architecture(binaries: &[(&str, &[u8])]) -> anyhow::Result<&'static str> {
    let mut common = None;
    for (name, bytes) in binaries {
        let architecture = architecture(bytes).with_context(|| format!("{name} cannot be shipped"))?;
        if common.is_some_and(|common| common != architecture) {
            bail!("{name} is for {architecture}, the others are not");
        }
        common = Some(architecture);
    }
    common.context("no binaries")
}

fn architecture(bytes: &[u8]) -> anyhow::Result<&'static str> {
    let file = ElfFile64::<Endianness>::parse(bytes).context("it is no 64-bit ELF binary")?;
    let endian = file.endian();
    let needs_loader = |header: &_| object::elf::ProgramHeader64::p_type(header, endian) == PT_INTERP;
    if file.elf_program_headers().iter().any(needs_loader) {
        bail!("it is linked dynamically, and the image has no loader and no libraries: `cargo xtask build`");
    }
    match file.architecture() {
        Architecture::X86_64 => Ok("amd64"),
        Architecture::Aarch64 => Ok("arm64"),
        other => bail!("it is for {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_binary_that_needs_a_loader_is_refused() {
        let own = fs::read(std::env::current_exe().expect("this test")).expect("its binary");
        let error = common_architecture(&[("test", &own)]).expect_err("dynamic");
        assert!(format!("{error:#}").contains("linked dynamically"), "{error:#}");
        let error = common_architecture(&[("text", b"#!/bin/sh")]).expect_err("no ELF");
        assert!(
            format!("{error:#}").contains("text cannot be shipped"),
            "{error:#}"
        );
    }

    #[test]
    fn binaries_of_two_architectures_are_no_image() {
        let (intel, arm) = (head(62), head(183));
        assert_eq!(common_architecture(&[("a", &intel)]).expect("amd64"), "amd64");
        assert_eq!(common_architecture(&[("a", &arm)]).expect("arm64"), "arm64");
        assert!(common_architecture(&[("a", &intel), ("b", &arm)]).is_err());
    }

    /// An ELF header without segments or sections, for a machine (`e_machine`).
    fn head(machine: u16) -> Vec<u8> {
        let mut head = vec![0; 64];
        head[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        head[16..18].copy_from_slice(&2u16.to_le_bytes());
        head[18..20].copy_from_slice(&machine.to_le_bytes());
        head[20] = 1;
        head[52..54].copy_from_slice(&64u16.to_le_bytes());
        head
    }
}
