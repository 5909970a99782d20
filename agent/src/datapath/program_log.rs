//! What the programs tell of each decision, when that is asked for, as records of the agent's log.

use std::os::fd::{AsRawFd, RawFd};

use agent_common::counters::PodCounters;
use aya::{Ebpf, EbpfLoader};
use aya_log::EbpfLogger;
use log::{Log, Metadata, Record};

/// The programs' constant that says whether they tell.
const TELLING: &str = "TELLING";
/// The ring buffer that the programs write to; its name is given by aya-log.
const RING: &str = "AYA_LOGS";
/// Bytes of the ring when nothing is written to it: the least that the kernel takes.
const UNUSED: u32 = 4096;

/// Tells the programs, before they are loaded, whether each decision is to be told.
pub(super) fn prepare<'a>(loader: &mut EbpfLoader<'a>, is_wanted: bool) {
    if is_wanted {
        loader.override_global(TELLING, &1_u8, true);
    } else {
        loader.map_max_entries(RING, UNUSED);
    }
}

/// The reading side. The programs write to it as long as it lives.
pub struct ProgramLog(EbpfLogger<Decisions>);

impl ProgramLog {
    /// Takes it out of the loaded programs.
    ///
    /// # Errors
    /// When they have none.
    pub(super) fn take(ebpf: &mut Ebpf) -> Result<Self, aya_log::Error> {
        EbpfLogger::init_with_logger(ebpf, Decisions).map(Self)
    }

    /// Logs what has been written; to be called when there is something to read.
    pub fn flush(&mut self) {
        self.0.flush();
    }
}

impl AsRawFd for ProgramLog {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Gives records of aya-log to the agent's own log.
struct Decisions;

impl Log for Decisions {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let text = record.args().to_string();
        let mut words = text.split(' ');
        let mut next = || words.next().unwrap_or_default();
        let (netns_cookie, counter, peer, port) = (next(), next(), next(), next());
        let counter: Option<usize> = counter.parse().ok();
        let decision = counter.and_then(name_of).unwrap_or("unknown");
        tracing::info!(target: "agent::program", netns_cookie, peer, port, "{decision}");
    }

    fn flush(&self) {}
}

/// The counter at this place in [`PodCounters`], in bytes.
fn name_of(counter: usize) -> Option<&'static str> {
    let at = counter / size_of::<u64>();
    PodCounters::default().fields().nth(at).map(|(name, ..)| name)
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn counters_have_the_names_of_their_places() {
        let at = offset_of!(PodCounters, inbound_trusted);
        assert_eq!(name_of(at), Some("inbound_trusted"));
        assert_eq!(name_of(size_of::<PodCounters>()), None);
    }
}
