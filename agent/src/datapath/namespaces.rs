//! What is changed in pods' network namespaces beside the link, and its undoing, also by an agent that did not make it.

use std::collections::HashMap;
use std::io;

use agent_common::pod::changed::{MIGRATE, TW_REUSE, WIRE};
use agent_core::entry::{NetnsCookie, PodEntry};

use super::{settings, wire};
use crate::netns::by_cookie;
use crate::netns::enter::enter;
use crate::ports::Netns;
use crate::predecessor::Rules;

/// The changes by namespace. The bits are those of [`agent_common::pod::changed`].
#[derive(Debug, Default)]
pub struct Namespaces {
    bits: HashMap<NetnsCookie, u32>,
    /// What this process has made or found made: an earlier agent may have died between recording and making.
    done: HashMap<NetnsCookie, u32>,
    open: HashMap<NetnsCookie, Netns>,
}

/// The changes that a pod needs.
#[must_use]
pub fn needed(entry: &PodEntry) -> u32 {
    let wire = if entry.wire { WIRE } else { 0 };
    let reuse = if entry.inbound && !entry.wire && entry.source6.is_some() {
        TW_REUSE
    } else {
        0
    };
    MIGRATE | wire | reuse
}

impl Namespaces {
    /// Remembers what an earlier agent changed.
    pub fn adopt(&mut self, netns: NetnsCookie, bits: u32) {
        if bits != 0 {
            self.bits.insert(netns, bits);
        }
    }

    /// What is changed in this namespace.
    #[must_use]
    pub fn changed(&self, netns: NetnsCookie) -> u32 {
        self.bits.get(&netns).copied().unwrap_or_default()
    }

    /// Makes the changes that are needed and undoes others. The caller has recorded the needed ones where they outlive
    /// this process.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn change(&mut self, netns: &Netns, needed: u32) -> io::Result<()> {
        let is = self.changed(netns.cookie);
        self.open.insert(netns.cookie, netns.clone());
        if is & !needed != 0 {
            undo(netns, is & !needed)?;
            self.bits.insert(netns.cookie, is & needed);
        }
        let more = needed & !self.done.get(&netns.cookie).copied().unwrap_or_default();
        if more != 0 {
            // Before they are made: what fails half-way is undone as a whole.
            self.bits.insert(netns.cookie, is & needed | more);
            let made = make(netns, more)?;
            self.bits.insert(netns.cookie, is & needed | made);
        }
        self.done.insert(netns.cookie, needed);
        Ok(())
    }

    /// Opens a namespace; `None` when it is gone.
    ///
    /// # Errors
    /// When /proc cannot be read.
    pub fn find(&self, cookie: NetnsCookie) -> io::Result<Option<Netns>> {
        match self.open.get(&cookie) {
            Some(netns) => Ok(Some(netns.clone())),
            None => Ok(by_cookie::find(&[cookie.0])?.pop()),
        }
    }

    /// Undoes all changes; a namespace that is gone has none.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn undo(&mut self, cookie: NetnsCookie) -> io::Result<()> {
        let bits = self.changed(cookie);
        if bits != 0
            && let Some(netns) = self.find(cookie)?
        {
            undo(&netns, bits)?;
        }
        self.bits.remove(&cookie);
        self.done.remove(&cookie);
        self.open.remove(&cookie);
        Ok(())
    }
}

/// Makes changes in a namespace; returns those that were not there before.
fn make(netns: &Netns, bits: u32) -> io::Result<u32> {
    enter(netns, || {
        let made = settings::make(bits)?;
        if bits & WIRE != 0 {
            wire::route_back(true)?;
        }
        Ok(made | bits & WIRE)
    })
    .map_err(io::Error::other)?
}

/// Undoes changes in a namespace. Where Istio's rules are, an agent of Istio's has taken over, and what both need stays.
///
/// # Errors
/// When the kernel refuses.
pub fn undo(netns: &Netns, bits: u32) -> io::Result<()> {
    enter(netns, || {
        if bits & WIRE != 0 && !Rules::are_here()? {
            wire::route_back(false)?;
        }
        settings::undo(bits).map(drop)
    })
    .map_err(io::Error::other)?
}
