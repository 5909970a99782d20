//! What an agent makes of the pins that it finds at its start, by the version of the layouts under which they lie
//! (`<bpffs>/meshgate/v<N>`): its own go on, those of the version before are taken over, leftovers go, and what it cannot
//! read stops it before anything is changed. Pure.

/// The pins of one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The version.
    pub version: u32,
    /// Links that are attached to something: they capture.
    pub attached: usize,
}

/// What is to be done with what was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Take over from this version.
    pub from: Option<u32>,
    /// Remove the pins of these versions first: nothing uses them.
    pub stale: Vec<u32>,
}

/// Why the agent must not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A later agent was here.
    #[error(
        "pods are captured by the pins of version v{found}, which a newer meshgate made; this one makes v{own} and cannot \
         read them: run the newer one again, or run `meshgate cleanup` before this one (pods are then outside the mesh \
         until it has started)"
    )]
    Newer {
        /// Its version.
        found: u32,
        /// This agent's.
        own: u32,
    },
    /// A much earlier agent was here.
    #[error(
        "pods are captured by the pins of version v{found}, which an older meshgate made; this one makes v{own} and cannot \
         read them: run a meshgate of v{next} in between, or run `meshgate cleanup` before this one (pods are then \
         outside the mesh until it has started)"
    )]
    TooOld {
        /// Its version.
        found: u32,
        /// This agent's.
        own: u32,
        /// The version that can read it.
        next: u32,
    },
}

/// Decides for an agent of version `own` that can take over from the `readable` versions.
///
/// # Errors
/// When pods are captured by what this agent cannot read.
pub fn decide(own: u32, readable: &[u32], found: &[Found]) -> Result<Decision, Refusal> {
    let others = || found.iter().filter(|pins| pins.version != own);
    for pins in others().filter(|pins| pins.attached > 0) {
        let found = pins.version;
        if found > own {
            return Err(Refusal::Newer { found, own });
        }
        if !readable.contains(&found) {
            let next = found + 1;
            return Err(Refusal::TooOld { found, own, next });
        }
    }
    let from = others()
        .filter(|pins| pins.attached > 0)
        .map(|pins| pins.version)
        .max();
    // Maps of this version that nothing uses must not be mixed with what is taken over.
    let is_stale = |pins: &&Found| pins.attached == 0 && (pins.version != own || from.is_some());
    Ok(Decision {
        from,
        stale: found.iter().filter(is_stale).map(|pins| pins.version).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(found: &[(u32, usize)]) -> Result<Decision, Refusal> {
        let found: Vec<_> = found
            .iter()
            .map(|(version, attached)| Found {
                version: *version,
                attached: *attached,
            })
            .collect();
        decide(5, &[4], &found)
    }

    fn taking(from: Option<u32>, stale: &[u32]) -> Result<Decision, Refusal> {
        Ok(Decision {
            from,
            stale: stale.to_vec(),
        })
    }

    #[test]
    fn pins_are_kept_taken_over_or_removed_by_their_version_and_use() {
        for (found, expected) in [
            (&[][..], taking(None, &[])),
            (&[(5, 18)], taking(None, &[])),
            (&[(5, 0)], taking(None, &[])),
            (&[(0, 0), (5, 18), (999, 0)], taking(None, &[0, 999])),
            (&[(4, 18)], taking(Some(4), &[])),
            // This agent died while it took over: it goes on.
            (&[(4, 18), (5, 3)], taking(Some(4), &[])),
            // Maps without a link are not of that take-over.
            (&[(4, 18), (5, 0)], taking(Some(4), &[5])),
            (&[(4, 0), (5, 18)], taking(None, &[4])),
        ] {
            assert_eq!(decided(found), expected, "{found:?}");
        }
    }

    #[test]
    fn what_captures_and_cannot_be_read_stops_the_agent() {
        for (found, expected) in [
            (&[(6, 1)][..], Refusal::Newer { found: 6, own: 5 }),
            (&[(5, 18), (6, 18)], Refusal::Newer { found: 6, own: 5 }),
            (
                &[(3, 1)],
                Refusal::TooOld {
                    found: 3,
                    own: 5,
                    next: 4,
                },
            ),
            (
                &[(3, 1), (4, 18)],
                Refusal::TooOld {
                    found: 3,
                    own: 5,
                    next: 4,
                },
            ),
        ] {
            assert_eq!(decided(found), Err(expected), "{found:?}");
        }
    }
}
