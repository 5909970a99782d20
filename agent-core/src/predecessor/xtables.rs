//! Chains taken out of a table of iptables-legacy: the kernel gives and takes a table as one run of entries that refer to
//! each other by offset (linux/netfilter_ipv4/ip_tables.h, ip6_tables.h, x_tables.h).

use std::collections::BTreeMap;

/// Hooks of a table (`NF_INET_NUMHOOKS`).
pub const HOOKS: usize = 5;
/// Name of a target: `XT_EXTENSION_MAXNAMELEN` bytes behind its size.
const TARGET_NAME: usize = 2;
/// Where a target's data begin: behind `struct xt_entry_target`.
const TARGET_DATA: usize = 32;
/// Target that heads a chain, and ends the table.
const ERROR: &[u8] = b"ERROR";

/// Where the fields of an entry are: `struct ipt_entry` or `struct ip6t_entry`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    target_offset: usize,
    next_offset: usize,
    size: usize,
}

/// `struct ipt_entry`.
pub const V4: Layout = Layout {
    target_offset: 88,
    next_offset: 90,
    size: 112,
};
/// `struct ip6t_entry`.
pub const V6: Layout = Layout {
    target_offset: 140,
    next_offset: 142,
    size: 168,
};

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Bits of the hooks that it has.
    pub valid_hooks: u32,
    /// Offset of the first entry of each hook.
    pub hook_entry: [u32; HOOKS],
    /// Offset of each hook's policy.
    pub underflow: [u32; HOOKS],
    /// How many entries there are.
    pub count: u32,
    /// The entries.
    pub entries: Vec<u8>,
}

/// A table without some of its chains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edited {
    /// What is left.
    pub table: Table,
    /// Which of the entries are left, by their number in the old table: each keeps its counters.
    pub kept: Vec<usize>,
}

/// The entries are not what the kernel documents.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the entry at offset {0} of the table cannot be read")]
pub struct Malformed(usize);

/// What an entry is to the others.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    offset: usize,
    length: usize,
    /// Name of the chain that it heads.
    heads: Option<String>,
    /// Place and value of a verdict that is an offset.
    verdict: Option<(usize, usize)>,
}

/// The table without the chains of these names and the rules that jump to them; `None` unless all of them are there.
///
/// # Errors
/// When the entries cannot be read; nothing should be written then.
pub fn without(table: &Table, layout: Layout, chains: &[&str]) -> Result<Option<Edited>, Malformed> {
    let entries = read(&table.entries, layout)?;
    let mut doomed = vec![false; entries.len()];
    let mut starts = Vec::new();
    let mut found = 0;
    let mut is_inside = false;
    for (number, entry) in entries.iter().enumerate() {
        if let Some(name) = &entry.heads {
            is_inside = chains.contains(&name.as_str());
            if is_inside {
                found += 1;
                starts.push(entry.offset + entry.length);
            }
        }
        doomed[number] = is_inside;
    }
    if found != chains.len() {
        return Ok(None);
    }
    for (entry, doomed) in entries.iter().zip(&mut doomed) {
        *doomed |= entry.verdict.is_some_and(|(_, to)| starts.contains(&to));
    }
    rebuild(table, &entries, &doomed).map(Some)
}

/// Copies what stays and moves each offset along.
fn rebuild(table: &Table, entries: &[Entry], doomed: &[bool]) -> Result<Edited, Malformed> {
    let mut moved = BTreeMap::new();
    let (mut bytes, mut kept) = (Vec::with_capacity(table.entries.len()), Vec::new());
    for (number, (entry, doomed)) in entries.iter().zip(doomed).enumerate() {
        // What is gone leads to what comes next.
        moved.insert(entry.offset, bytes.len());
        if !doomed {
            bytes.extend_from_slice(&table.entries[entry.offset..entry.offset + entry.length]);
            kept.push(number);
        }
    }
    let target = |old: usize| moved.get(&old).copied().ok_or(Malformed(old));
    for entry in kept.iter().map(|number| &entries[*number]) {
        if let Some((place, old)) = entry.verdict {
            let place = target(entry.offset)? + (place - entry.offset);
            bytes[place..place + 4].copy_from_slice(&(target(old)? as u32).to_ne_bytes());
        }
    }
    let mut edited = table.clone();
    for hook in (0..HOOKS).filter(|hook| table.valid_hooks & 1 << hook != 0) {
        edited.hook_entry[hook] = target(table.hook_entry[hook] as usize)? as u32;
        edited.underflow[hook] = target(table.underflow[hook] as usize)? as u32;
    }
    edited.count = kept.len() as u32;
    edited.entries = bytes;
    Ok(Edited { table: edited, kept })
}

fn read(bytes: &[u8], layout: Layout) -> Result<Vec<Entry>, Malformed> {
    let (mut entries, mut offset) = (Vec::new(), 0);
    while offset < bytes.len() {
        let entry = read_one(bytes, offset, layout).ok_or(Malformed(offset))?;
        offset += entry.length;
        entries.push(entry);
    }
    Ok(entries)
}

fn read_one(bytes: &[u8], offset: usize, layout: Layout) -> Option<Entry> {
    let half = |at: usize| {
        Some(usize::from(u16::from_ne_bytes(
            bytes.get(at..at + 2)?.try_into().ok()?,
        )))
    };
    let (target, length) = (
        half(offset + layout.target_offset)?,
        half(offset + layout.next_offset)?,
    );
    if target < layout.size || length < target + TARGET_DATA || offset + length > bytes.len() {
        return None;
    }
    let target = bytes.get(offset + target..offset + length)?;
    let place = offset + length - target.len() + TARGET_DATA;
    let (name, data) = (text(target.get(TARGET_NAME..)?)?, target.get(TARGET_DATA..)?);
    let (mut heads, mut verdict) = (None, None);
    if name == ERROR {
        heads = Some(String::from_utf8_lossy(text(data)?).into_owned());
    } else if name.is_empty() {
        // Verdicts below zero end the walk; others are where it goes on.
        let to = i32::from_ne_bytes(data.get(..4)?.try_into().ok()?);
        verdict = usize::try_from(to).ok().map(|to| (place, to));
    }
    Some(Entry {
        offset,
        length,
        heads,
        verdict,
    })
}

/// Bytes up to the first zero.
fn text(bytes: &[u8]) -> Option<&[u8]> {
    bytes.split(|byte| *byte == 0).next()
}

#[cfg(test)]
mod tests;
