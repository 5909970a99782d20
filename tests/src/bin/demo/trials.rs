//! The connections that the demo tries, and what shall become of each.

use ::tests::proxy::Direction::{Inbound, Outbound};

use crate::trial::{Place, Trial};

/// While client and server are in the mesh.
pub(crate) const IN_THE_MESH: [Trial; 7] = [
    Trial {
        from: Place::Client,
        to: Place::Outside,
        through: &[Outbound],
        counted: &[(Place::Client, "outbound_captured")],
        why: "client is in the mesh: what it opens goes to the proxy",
    },
    Trial {
        from: Place::Outside,
        to: Place::Server,
        through: &[Inbound],
        counted: &[(Place::Server, "inbound_captured")],
        why: "server is in the mesh: what comes to it goes to the proxy",
    },
    Trial {
        from: Place::Client,
        to: Place::Server,
        through: &[Outbound, Inbound],
        counted: &[
            (Place::Client, "outbound_captured"),
            (Place::Server, "inbound_captured"),
        ],
        why: "both are: once on the way out, once on the way in",
    },
    Trial {
        from: Place::Node,
        to: Place::Server,
        through: &[],
        counted: &[(Place::Server, "inbound_trusted")],
        why: "the node's own process: health probes are let through",
    },
    Trial {
        from: Place::Client,
        to: Place::Client,
        through: &[],
        counted: &[(Place::Client, "outbound_own_address")],
        why: "its own address: that never leaves the pod",
    },
    Trial {
        from: Place::Client,
        to: Place::Loopback,
        through: &[],
        counted: &[(Place::Client, "outbound_loopback")],
        why: "loopback: that never leaves the pod",
    },
    Trial {
        from: Place::Outside,
        to: Place::Node,
        through: &[],
        counted: &[],
        why: "neither end is in the mesh",
    },
];

/// After the client has left the mesh.
pub(crate) const CLIENT_OUT: [Trial; 2] = [
    Trial {
        from: Place::Client,
        to: Place::Outside,
        through: &[],
        counted: &[],
        why: "client is no longer in the mesh",
    },
    Trial {
        from: Place::Client,
        to: Place::Server,
        through: &[Inbound],
        counted: &[(Place::Server, "inbound_captured")],
        why: "server still is",
    },
];

/// Once the agent has stopped.
pub(crate) const AGENT_STOPPED: [Trial; 1] = [Trial {
    from: Place::Outside,
    to: Place::Server,
    through: &[Inbound],
    counted: &[(Place::Server, "inbound_captured")],
    why: "the programs stay in the kernel: nothing escapes meanwhile",
}];

/// After the cleanup.
pub(crate) const NOTHING_LEFT: [Trial; 1] = [Trial {
    from: Place::Outside,
    to: Place::Server,
    through: &[],
    counted: &[],
    why: "nothing redirects any more",
}];
