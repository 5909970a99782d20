//! One connection of the demo: what shall happen to it, what did, and what of that is not as told.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use ::tests::proxy::Direction;

/// Where the demo's servers listen.
pub(crate) const PORT: u16 = 80;

/// Who starts a connection, or is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A pod in the mesh.
    Client,
    /// Another pod in the mesh.
    Server,
    /// A pod outside the mesh.
    Outside,
    /// The node itself.
    Node,
    /// Whoever asks, by its loopback address.
    Loopback,
}

impl Place {
    /// As the demo calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
            Self::Outside => "outside",
            Self::Node => "node",
            Self::Loopback => "loopback",
        }
    }
}

/// A connection to try, in both address families.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trial {
    /// Who connects.
    pub(crate) from: Place,
    /// Who is asked for.
    pub(crate) to: Place,
    /// The ways by which the proxy shall see it, in this order; none if it shall not.
    pub(crate) through: &'static [Direction],
    /// What shall be counted, and for whom.
    pub(crate) counted: &'static [(Place, &'static str)],
    /// Why, in plain words.
    pub(crate) why: &'static str,
}

/// How often each thing was counted: pod's name, counter.
pub(crate) type Counts = BTreeMap<(String, String), u64>;

/// What happened.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// What connect and the first read said.
    pub(crate) outcome: String,
    /// The peer that the client's socket has.
    pub(crate) peer: Option<SocketAddr>,
    /// The client that the server's socket has.
    pub(crate) client: Option<IpAddr>,
    /// Where the proxy saw it.
    pub(crate) through: Vec<Direction>,
    /// What was counted meanwhile.
    pub(crate) counted: Counts,
}

/// The proxy's part in words.
pub(crate) fn ways(through: &[Direction]) -> String {
    if through.is_empty() {
        return "no".to_owned();
    }
    let word = |way: &Direction| match way {
        Direction::Outbound => "out",
        Direction::Inbound => "in",
        Direction::Hbone => "hbone",
    };
    through.iter().map(word).collect::<Vec<_>>().join(", ")
}

/// What of `seen` is not as told; `asked` is the address that was asked for and `from` the one that the server must see.
pub(crate) fn faults(trial: &Trial, asked: SocketAddr, from: IpAddr, seen: &Seen) -> Vec<String> {
    if seen.outcome != "ok" {
        return vec![format!("the connection failed: {}", seen.outcome)];
    }
    let mut faults = Vec::new();
    if seen.through != trial.through {
        let (wanted, got) = (ways(trial.through), ways(&seen.through));
        faults.push(format!("through the proxy: {got}, and should be: {wanted}"));
    }
    if seen.peer != Some(asked) {
        faults.push(format!("the client asked for {asked} and sees {:?}", seen.peer));
    }
    if seen.client != Some(from) {
        faults.push(format!("the server should see {from} and sees {:?}", seen.client));
    }
    for (place, counter) in trial.counted {
        let key = (place.name().to_owned(), (*counter).to_owned());
        let count = seen.counted.get(&key).copied().unwrap_or(0);
        if count != 1 {
            faults.push(format!("{counter} of {} rose by {count}, not by 1", place.name()));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIAL: Trial = Trial {
        from: Place::Client,
        to: Place::Outside,
        through: &[Direction::Outbound],
        counted: &[(Place::Client, "outbound_captured")],
        why: "",
    };

    fn as_told() -> Seen {
        Seen {
            outcome: "ok".into(),
            peer: Some("10.1.0.4:80".parse().unwrap()),
            client: Some("10.1.0.2".parse().unwrap()),
            through: vec![Direction::Outbound],
            counted: [(("client".into(), "outbound_captured".into()), 1)].into(),
        }
    }

    #[test]
    fn each_thing_that_is_not_as_told_is_a_fault() {
        type Change = fn(&mut Seen);
        let changes: [(Change, usize); 7] = [
            (|_| (), 0),
            (|seen| seen.outcome = "ECONNREFUSED".into(), 1),
            (|seen| seen.peer = Some("127.0.0.1:15001".parse().unwrap()), 1),
            (|seen| seen.client = Some("127.0.0.1".parse().unwrap()), 1),
            (|seen| seen.through.clear(), 1),
            (|seen| seen.through.push(Direction::Inbound), 1),
            (
                |seen| {
                    seen.counted.clear();
                    seen.client = None;
                },
                2,
            ),
        ];
        for (change, faults_wanted) in changes {
            let mut seen = as_told();
            change(&mut seen);
            let faults = faults(&TRIAL, as_told().peer.unwrap(), as_told().client.unwrap(), &seen);
            assert_eq!(faults.len(), faults_wanted, "{seen:?}: {faults:?}");
        }
    }

    #[test]
    fn ways_are_told_in_words() {
        assert_eq!(ways(&[]), "no");
        assert_eq!(ways(&[Direction::Outbound, Direction::Inbound]), "out, in");
    }
}
