//! Tables built by hand, with and without chains, in both layouts.

use super::*;

/// What an entry of a table does.
#[derive(Clone, Debug)]
enum Does {
    /// Heads a chain.
    Heads(&'static str),
    /// Jumps to the first rule of a chain.
    Jumps(&'static str),
    /// Goes on with the next rule.
    GoesOn,
    /// Ends the walk.
    Accepts,
    /// Has another target, with these data.
    Other(u8),
}
use Does::{Accepts, GoesOn, Heads, Jumps, Other};

/// PREROUTING and OUTPUT with these rules, and further chains.
fn table(layout: Layout, prerouting: &[Does], output: &[Does], chains: &[Does]) -> Table {
    let all: Vec<Does> = [
        prerouting,
        &[Accepts],
        output,
        &[Accepts],
        chains,
        &[Heads("ERROR")],
    ]
    .concat();
    let length = |does: &Does| layout.size + TARGET_DATA + if matches!(does, Heads(_)) { 32 } else { 8 };
    let offsets: Vec<usize> = all
        .iter()
        .scan(0, |at, does| Some(std::mem::replace(at, *at + length(does))))
        .collect();
    let start = |name: &str| {
        let head = all
            .iter()
            .position(|does| matches!(does, Heads(n) if *n == name))
            .unwrap();
        offsets[head] + length(&all[head])
    };
    let mut entries = Vec::new();
    for (number, does) in all.iter().enumerate() {
        let mut entry = vec![number as u8; length(does)];
        entry[layout.target_offset..][..2].copy_from_slice(&(layout.size as u16).to_ne_bytes());
        entry[layout.next_offset..][..2].copy_from_slice(&(length(does) as u16).to_ne_bytes());
        let (name, data) = match does {
            Heads(name) => ("ERROR", name.as_bytes().to_vec()),
            Jumps(name) => ("", (start(name) as u32).to_ne_bytes().to_vec()),
            GoesOn => (
                "",
                ((offsets[number] + length(does)) as u32).to_ne_bytes().to_vec(),
            ),
            Accepts => ("", (-2_i32).to_ne_bytes().to_vec()),
            Other(byte) => ("MARK", vec![*byte; 4]),
        };
        let target = &mut entry[layout.size..];
        target.fill(0);
        target[TARGET_NAME..][..name.len()].copy_from_slice(name.as_bytes());
        target[TARGET_DATA..][..data.len()].copy_from_slice(&data);
        entries.extend(entry);
    }
    let second = prerouting.len() + 1;
    let at = |number: usize| offsets[number] as u32;
    Table {
        valid_hooks: 0b01001,
        hook_entry: [at(0), 0, 0, at(second), 0],
        underflow: [at(prerouting.len()), 0, 0, at(second + output.len()), 0],
        count: all.len() as u32,
        entries,
    }
}

/// The entries without their numbers, which [`table`] writes into what it does not set.
fn plain(table: &Table, layout: Layout) -> Vec<Vec<u8>> {
    let entries = read(&table.entries, layout).unwrap();
    let bytes =
        |entry: &Entry| table.entries[entry.offset + layout.size..entry.offset + entry.length].to_vec();
    entries.iter().map(bytes).collect()
}

#[test]
fn chains_and_jumps_go_and_all_else_is_as_if_they_had_never_been_there() {
    let (prert, out) = ("ISTIO_PRERT", "ISTIO_OUTPUT");
    for layout in [V4, V6] {
        let with = table(
            layout,
            &[Jumps(prert), Jumps("MINE"), Other(1)],
            &[GoesOn, Jumps(out), Other(2)],
            &[
                Heads(out),
                Other(8),
                Accepts,
                Heads("MINE"),
                Other(3),
                Jumps("AFTER"),
                Accepts,
                Heads(prert),
                Other(9),
                Accepts,
                Heads("AFTER"),
                Other(4),
                Accepts,
            ],
        );
        let without_them = table(
            layout,
            &[Jumps("MINE"), Other(1)],
            &[GoesOn, Other(2)],
            &[
                Heads("MINE"),
                Other(3),
                Jumps("AFTER"),
                Accepts,
                Heads("AFTER"),
                Other(4),
                Accepts,
            ],
        );
        let Edited { table: edited, kept } = without(&with, layout, &[prert, out]).unwrap().unwrap();
        assert_eq!(plain(&edited, layout), plain(&without_them, layout));
        assert_eq!(
            (
                edited.hook_entry,
                edited.underflow,
                edited.count,
                edited.entries.len()
            ),
            (
                without_them.hook_entry,
                without_them.underflow,
                without_them.count,
                without_them.entries.len()
            )
        );
        assert_eq!(kept, [1, 2, 3, 4, 6, 7, 11, 12, 13, 14, 18, 19, 20, 21]);
        // What was kept was kept as it was, but for offsets.
        let entries = read(&edited.entries, layout).unwrap();
        for (entry, number) in entries.iter().zip(&kept) {
            assert_eq!(usize::from(edited.entries[entry.offset]), *number);
        }
    }
}

#[test]
fn a_table_without_all_of_the_chains_is_left_alone() {
    let sidecar = [Heads("ISTIO_OUTPUT"), Accepts, Heads("ISTIO_INBOUND"), Accepts];
    for chains in [&[][..], &sidecar] {
        let table = table(V4, &[], &[], chains);
        assert_eq!(without(&table, V4, &["ISTIO_PRERT", "ISTIO_OUTPUT"]), Ok(None));
    }
}

#[test]
fn entries_that_are_cut_off_or_lead_nowhere_are_an_error() {
    let chains = [Heads("A"), Accepts];
    let whole = table(V4, &[Jumps("A"), Other(1)], &[], &chains);
    for cut in [1, 40, whole.entries.len() - 8] {
        let mut cut_off = whole.clone();
        cut_off.entries.truncate(cut);
        assert!(without(&cut_off, V4, &["A"]).is_err(), "{cut}");
    }
    let mut astray = whole.clone();
    astray.hook_entry[0] = 4;
    assert_eq!(without(&astray, V4, &["A"]), Err(Malformed(4)));
    let mut endless = whole;
    endless.entries[V4.next_offset..][..2].fill(0);
    assert_eq!(without(&endless, V4, &["A"]), Err(Malformed(0)));
}
