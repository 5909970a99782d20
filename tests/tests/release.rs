//! What is copied to nodes: the plugin runs there whatever C library there is, and is small.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use tests::{programs, requires};

/// Type of a program header that names the dynamic linker (elf(5)).
const PT_INTERP: u32 = 3;
/// Type of a section with the symbols that stripping removes.
const SHT_SYMTAB: u32 = 2;
/// Bytes of the plugin. Every node keeps two names of it, and reads it for every pod.
const LARGEST_PLUGIN: u64 = 6_000_000;

/// Types of the program headers and of the sections of a 64-bit ELF file of this machine (elf(5)).
fn headers(path: &Path) -> Result<(Vec<u32>, Vec<u32>)> {
    let file = fs::read(path)?;
    let number = |at: usize, size: usize| -> Result<usize> {
        let bytes = file.get(at..at + size).context("the file is cut off")?;
        let mut padded = [0; 8];
        padded[..size].copy_from_slice(bytes);
        Ok(usize::try_from(u64::from_le_bytes(padded))?)
    };
    ensure!(
        file.starts_with(b"\x7fELF\x02\x01"),
        "{} is no 64-bit ELF file",
        path.display()
    );
    let table = |start: usize, size: usize, count: usize, kind: usize| -> Result<Vec<u32>> {
        let (start, size, count) = (number(start, 8)?, number(size, 2)?, number(count, 2)?);
        (0..count)
            .map(|index| Ok(u32::try_from(number(start + index * size + kind, 4)?)?))
            .collect()
    };
    Ok((table(0x20, 0x36, 0x38, 0)?, table(0x28, 0x3a, 0x3c, 4)?))
}

#[test]
fn the_plugin_is_static_stripped_and_small_and_the_agent_static() -> Result<()> {
    let name = "the_plugin_is_static_stripped_and_small_and_the_agent_static";
    let plugin = programs::find("meshgate-cni")?;
    if plugin.ancestors().any(|folder| folder.ends_with("debug")) {
        requires::skip(
            name,
            "these are debug binaries: `cargo xtask build` makes the others",
        );
        return Ok(());
    }
    for (path, is_stripped) in [(plugin.clone(), true), (programs::find("meshgate")?, false)] {
        let (segments, sections) = headers(&path)?;
        ensure!(
            !segments.is_empty() && !segments.contains(&PT_INTERP),
            "{} needs a dynamic linker",
            path.display()
        );
        ensure!(
            !is_stripped || !sections.contains(&SHT_SYMTAB),
            "{} has symbols",
            path.display()
        );
    }
    let size = fs::metadata(&plugin)?.len();
    ensure!(size <= LARGEST_PLUGIN, "{} has {size} bytes", plugin.display());
    Ok(())
}
