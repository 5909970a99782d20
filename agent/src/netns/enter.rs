//! Work within a network namespace, on a thread of its own that ends afterwards: there is nothing to restore, so no
//! restore can fail and leave the agent in a pod's namespace.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;

use agent_core::entry::NetnsCookie;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::netns::addresses::RouteSocket;

/// Why work within a namespace did not happen, or what it ran into.
#[derive(Debug, thiserror::Error)]
pub enum EnterError {
    /// The thread could not be made.
    #[error("start of a thread for a network namespace: {0}; the limit of processes is probably reached")]
    Thread(#[source] io::Error),
    /// setns(2) failed.
    #[error(
        "entering a network namespace: {0}; it needs CAP_SYS_ADMIN and a descriptor of a network namespace"
    )]
    Enter(#[source] io::Error),
    /// The kernel did not answer a question within the namespace.
    #[error("{question} within a network namespace: {source}")]
    Ask {
        /// What was asked.
        question: &'static str,
        /// Why there is no answer.
        source: io::Error,
    },
}

/// What a namespace says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetnsFacts {
    /// Its cookie.
    pub cookie: NetnsCookie,
    /// Addresses of all its interfaces but 127.0.0.0/8 and ::1, sorted.
    pub addresses: Vec<IpAddr>,
}

/// Runs `work` on a thread within a network namespace.
///
/// # Errors
/// When there is no thread or the namespace cannot be entered; `work` has not run then.
///
/// # Panics
/// With the panic of `work`.
pub fn enter<T: Send>(netns: impl AsFd, work: impl FnOnce() -> T + Send) -> Result<T, EnterError> {
    let netns = netns.as_fd();
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .name("netns".to_owned())
            .spawn_scoped(scope, || {
                switch_to(netns).map_err(EnterError::Enter)?;
                Ok(work())
            })
            .map_err(EnterError::Thread)?;
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn switch_to(netns: BorrowedFd<'_>) -> io::Result<()> {
    Ok(move_into_link_name_space(
        netns,
        Some(LinkNameSpaceType::Network),
    )?)
}

/// Cookie and addresses of a namespace, by one thread and one socket.
///
/// # Errors
/// When the namespace cannot be entered or the kernel does not answer.
pub fn inspect(netns: impl AsFd) -> Result<NetnsFacts, EnterError> {
    enter(netns, || {
        let socket = route_socket()?;
        let cookie = cookie_of(&socket)?;
        let question = "listing the addresses";
        let addresses = socket
            .addresses()
            .map_err(|source| EnterError::Ask { question, source })?;
        Ok(NetnsFacts { cookie, addresses })
    })?
}

/// Cookie of a namespace.
///
/// # Errors
/// As [`inspect`].
pub fn cookie(netns: impl AsFd) -> Result<NetnsCookie, EnterError> {
    enter(netns, || cookie_of(&route_socket()?))?
}

fn route_socket() -> Result<RouteSocket, EnterError> {
    let question = "opening a netlink socket";
    RouteSocket::open().map_err(|source| EnterError::Ask { question, source })
}

fn cookie_of(socket: &RouteSocket) -> Result<NetnsCookie, EnterError> {
    let question = "reading the cookie (SO_NETNS_COOKIE, Linux 5.14)";
    socket
        .netns_cookie()
        .map(NetnsCookie)
        .map_err(|source| EnterError::Ask { question, source })
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::netns::NetnsId;
    use crate::netns::fixture::{TestNetns, needs_root};

    #[test]
    fn the_namespace_is_entered_and_the_caller_stays_where_it_was() {
        needs_root!();
        let other = TestNetns::new(&[]);
        let here = || NetnsId::of(std::fs::File::open("/proc/thread-self/ns/net").unwrap()).unwrap();
        let before = here();
        let inside = enter(&other.fd, here).unwrap();
        assert_eq!(inside, NetnsId::of(&other.fd).unwrap());
        assert_eq!(here(), before);
        assert_ne!(inside, before);
    }

    #[test]
    fn facts_are_the_cookie_and_the_addresses_that_are_not_loopback() {
        needs_root!();
        let netns = TestNetns::new(&["10.9.8.7/32", "fd00:9::7/128"]);
        let facts = inspect(&netns.fd).unwrap();
        let expected: Vec<IpAddr> = vec!["10.9.8.7".parse().unwrap(), "fd00:9::7".parse().unwrap()];
        assert_eq!(facts.addresses, expected);
        assert_eq!(facts.cookie, cookie(&netns.fd).unwrap());
        assert_ne!(facts.cookie, cookie(&TestNetns::new(&[]).fd).unwrap());
    }

    #[test]
    fn what_is_no_namespace_cannot_be_entered() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(matches!(inspect(file), Err(EnterError::Enter(_))));
    }

    #[test]
    fn inspecting_costs_well_below_a_millisecond() {
        needs_root!();
        let netns = TestNetns::new(&["10.9.8.6/32"]);
        let mut costs: Vec<_> = (0..200)
            .map(|_| {
                let start = Instant::now();
                inspect(&netns.fd).unwrap();
                start.elapsed()
            })
            .collect();
        costs.sort();
        let median = costs[costs.len() / 2];
        eprintln!("inspect: median {median:?}, worst {:?}", costs.last().unwrap());
        assert!(median.as_micros() < 1000, "{median:?}");
    }
}
