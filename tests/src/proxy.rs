//! The test proxy on a node: a process in a network namespace and a cgroup of its own, and its log of connections,
//! which is how a test proves capture.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use crate::node::Node;
use crate::pod::{Pod, json_lines};
use crate::process::Process;
use crate::spec::PodSpec;
use crate::{programs, wait};

/// One line of the proxy's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// Hello was sent on a new ZDS connection.
    Hello,
    /// A pod was added and its ports listen.
    Add {
        /// Kubernetes UID.
        uid: String,
        /// Kubernetes namespace.
        namespace: String,
        /// Name.
        name: String,
        /// Service account.
        service_account: String,
    },
    /// An add was refused on purpose (`--refuse-pod`) or because the pod's ports could not be opened.
    Refused {
        /// Kubernetes UID.
        uid: String,
        /// The text of the ack.
        error: String,
    },
    /// A pod was named as one to keep.
    Keep {
        /// Kubernetes UID.
        uid: String,
    },
    /// A pod's ports were closed.
    Del {
        /// Kubernetes UID.
        uid: String,
    },
    /// The snapshot is complete.
    Snapshot,
    /// The agent is gone.
    Disconnected {
        /// Why.
        error: String,
    },
    /// A connection was accepted and either goes on or was refused.
    Connection(Connection),
    /// Its DNS server was asked.
    Question {
        /// Kubernetes UID of the pod.
        pod: String,
        /// Who asked, as recvfrom(2) or accept4(2) told it.
        peer: SocketAddr,
        /// By which protocol.
        protocol: Protocol,
        /// For which name.
        name: String,
    },
}

/// A protocol that carries DNS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// Messages.
    Udp,
    /// A connection.
    Tcp,
}

/// A connection that the proxy accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// Which port it came by.
    pub direction: Direction,
    /// Kubernetes UID of the pod.
    pub pod: String,
    /// The client, as accept4(2) told it; never v4-mapped.
    pub peer: SocketAddr,
    /// Where the client wanted to go; never v4-mapped.
    pub destination: SocketAddr,
    /// Who said so.
    pub answer: Answer,
    /// The proxy's own address on the connection to the destination, if there is one: what the destination sees of a
    /// connection that came through the proxy. Never v4-mapped.
    #[serde(default)]
    pub upstream: Option<SocketAddr>,
    /// `ok`, or why it was refused.
    pub result: String,
}

/// Which of the proxy's ports took a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// 15001: from the pod's application.
    Outbound,
    /// 15006: to the pod's application.
    Inbound,
    /// 15008: to the pod's application by HBONE, which the test proxy does not speak: it logs and resets.
    Hbone,
}

/// Where the original destination came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// `SO_ORIGINAL_DST` at `SOL_IP`.
    SolIp,
    /// `SO_ORIGINAL_DST` at `SOL_IPV6`.
    SolIpv6,
    /// The accepted socket's own local address.
    Local,
}

/// A test proxy that runs.
#[derive(Debug)]
pub struct Proxy {
    process: Process,
    log: PathBuf,
    /// Owns the namespace and the cgroup.
    pod: Pod,
}

impl Proxy {
    /// Starts a proxy which connects to the node's ZDS socket, at once or when somebody listens there.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(node: &Node, name: &str, options: &[&str]) -> Result<Self> {
        Self::start_in(node, name, None, options)
    }

    /// Like [`Proxy::start`], with its process in this cgroup instead of its pod's.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_in(node: &Node, name: &str, cgroup: Option<&Path>, options: &[&str]) -> Result<Self> {
        let pod = node.pod_with(
            PodSpec::new(name)
                .namespace("istio-system")
                .label("app", "ztunnel"),
        )?;
        let log = node.run_dir().join(format!("{name}.jsonl"));
        let mut command = pod.command_in(cgroup, &programs::find("meshgate-testproxy")?)?;
        command
            .arg("--zds-socket")
            .arg(node.zds_socket())
            .arg("--log")
            .arg(&log)
            .args(options);
        let mut process = Process::start_talking(name, &mut command)?;
        process.await_line("started")?;
        Ok(Self { process, log, pod })
    }

    /// The pod that it is.
    #[must_use]
    pub fn pod(&self) -> &Pod {
        &self.pod
    }

    /// Its process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// When it has ended already.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.process.signal(signal)
    }

    /// Everything that it logged so far.
    ///
    /// # Errors
    /// When the log is not ours.
    pub fn events(&self) -> Result<Vec<Event>> {
        json_lines(&self.log, &mut 0)
    }

    /// All connections so far.
    ///
    /// # Errors
    /// When the log is not ours.
    pub fn connections(&self) -> Result<Vec<Connection>> {
        Ok(self.events()?.iter().filter_map(connection).cloned().collect())
    }

    /// The names that its DNS server was asked for so far, by which protocol.
    ///
    /// # Errors
    /// When the log is not ours.
    pub fn questions(&self) -> Result<Vec<(Protocol, String)>> {
        let question = |event| match event {
            Event::Question { protocol, name, .. } => Some((protocol, name)),
            _ => None,
        };
        Ok(self.events()?.into_iter().filter_map(question).collect())
    }

    /// Waits until `check` finds what it wants among all events, those of the past included.
    ///
    /// # Errors
    /// When it does not in time, or the proxy ends.
    pub fn wait_for_events<T>(&mut self, what: &str, check: impl Fn(&[Event]) -> Option<T>) -> Result<T> {
        let pidfd = self.process.pidfd().try_clone()?;
        let (log, process) = (&self.log, &mut self.process);
        let (mut events, mut read) = (Vec::new(), 0);
        wait::for_file(log, Some(pidfd.as_fd()), what, || {
            events.extend(json_lines(log, &mut read)?);
            match (check(&events), process.ended()?) {
                (Some(found), _) => Ok(Some(found)),
                (None, Some(status)) => bail!("the proxy ended with {status}"),
                (None, None) => Ok(None),
            }
        })
    }

    /// Waits for an event, among those of the past too.
    ///
    /// # Errors
    /// As [`Proxy::wait_for_events`].
    pub fn wait_for<T>(&mut self, what: &str, wanted: impl Fn(&Event) -> Option<T>) -> Result<T> {
        self.wait_for_events(what, |events| events.iter().find_map(&wanted))
    }

    /// Waits until it serves a pod.
    ///
    /// # Errors
    /// As [`Proxy::wait_for`].
    pub fn wait_for_pod(&mut self, pod: &Pod) -> Result<()> {
        self.wait_for(&format!("the proxy to serve {}", pod.name()), |event| {
            matches!(event, Event::Add { uid, .. } if uid == pod.uid()).then_some(())
        })
    }

    /// Waits for a connection with this direction and original destination.
    ///
    /// # Errors
    /// As [`Proxy::wait_for`].
    pub fn wait_for_connection(
        &mut self,
        direction: Direction,
        destination: SocketAddr,
    ) -> Result<Connection> {
        self.wait_for(
            &format!("an {direction:?} connection to {destination}"),
            |event| {
                connection(event)
                    .filter(|c| c.direction == direction && c.destination == destination)
                    .cloned()
            },
        )
    }

    /// Waits until it has accepted at least so many connections.
    ///
    /// # Errors
    /// As [`Proxy::wait_for`].
    pub fn wait_for_connections(&mut self, count: usize) -> Result<()> {
        self.wait_for_events(&format!("{count} connections"), |events| {
            (events.iter().filter_map(connection).count() >= count).then_some(())
        })
    }

    /// Stops it with SIGTERM: it closes its ports and lets connections end for five seconds.
    ///
    /// # Errors
    /// When it does not end in time.
    pub fn stop(mut self) -> Result<()> {
        self.process.signal(Signal::TERM)?;
        let status = self.process.wait()?;
        status
            .success()
            .then_some(())
            .with_context(|| format!("the proxy ended with {status}"))
    }
}

fn connection(event: &Event) -> Option<&Connection> {
    match event {
        Event::Connection(connection) => Some(connection),
        _ => None,
    }
}
