//! Rules of Istio's agent, removed from a pod's namespace, in an order that can be broken off anywhere: what is removed last
//! shows that there is something to remove.

use std::io;

use agent_core::predecessor::{Cleared, Clearing, Extent};

use super::wire;
use crate::netns::enter::enter;
use crate::ports::Netns;
use crate::predecessor::Rules;

/// What [`has_rules`] does, for errors.
pub(super) const LOOK: &str = "look for rules of Istio's agent";
/// What [`clear`] does, for errors.
pub(super) const CLEAR: &str = "remove the rules of Istio's agent";

/// Whether there are such rules.
pub(super) fn has_rules(netns: &Netns) -> io::Result<bool> {
    enter(netns, Rules::are_here).map_err(io::Error::other)?
}

/// Removes them.
pub(super) fn clear(netns: &Netns, clearing: Clearing) -> io::Result<Cleared> {
    enter(netns, || {
        let Some(rules) = Rules::find()? else {
            return Ok(Cleared::Gone);
        };
        rules.remove(Extent::Openings)?;
        let users = if clearing.waits { Rules::users()? } else { 0 };
        if users > 0 {
            return Ok(Cleared::Draining(users));
        }
        if !clearing.keeps_routes {
            wire::route_back(false)?;
        }
        Rules::find()?.map_or(Ok(()), |rest| rest.remove(Extent::Everything))?;
        Ok(Cleared::Gone)
    })
    .map_err(io::Error::other)?
}
