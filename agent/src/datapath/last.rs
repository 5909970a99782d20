//! The last captured connections, before everything is removed: what is on its way to the proxy is still told where it wanted
//! to go. Otherwise the proxy would refuse it, where another agent's rules take over without a gap.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::pins::{Pins, PinsError, unpin};
use super::tables::Tables;

/// Programs without which no connection is led to the proxy.
const CAPTURING: [&str; 2] = ["app_connect4", "app_connect6"];
/// How long connections may wait for a proxy's accept; one without a proxy waits for ever.
const PATIENCE: Duration = Duration::from_secs(1);
/// The kernel tells nobody that a map has become empty, nor that a proxy has asked about what it accepted.
const PAUSE: Duration = Duration::from_millis(20);

/// Detaches what leads new connections to the proxy, and lets those that are on their way arrive. Returns how many pins were
/// removed.
///
/// # Errors
/// When a pin cannot be removed.
pub fn stop_capturing(pins: &Pins) -> Result<usize, PinsError> {
    let present = CAPTURING.map(|program| pins.node_links().join(program));
    let present: Vec<_> = present.into_iter().filter(|pin| pin.exists()).collect();
    for pin in &present {
        unpin(pin)?;
    }
    let deadline = Instant::now() + PATIENCE;
    while !present.is_empty() && Instant::now() < deadline {
        // A proxy asks a moment after its accept, which empties the map.
        sleep(PAUSE);
        match Tables::open(pins) {
            Ok(tables) if tables.handover.keys().next().is_some() => {}
            _ => break,
        }
    }
    Ok(present.len())
}
