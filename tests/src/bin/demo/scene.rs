//! The demo's node: three pods with a server each, the agent, the proxy, and connections between them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ::tests::cluster::User;
use ::tests::process::Process;
use ::tests::proxy::Event;
use ::tests::{Agent, Cluster, Node, Pod, PodSpec, Proxy, programs};
use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::trial::{Counts, PORT, Place, Seen, Trial};

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// A node with pods. Dropped in this order: processes, pods, the API server, the node.
pub(crate) struct Ground {
    _servers: Vec<Process>,
    /// A pod that will be in the mesh.
    pub(crate) client: Pod,
    /// Another one.
    pub(crate) server: Pod,
    /// A pod that will not.
    pub(crate) outside: Pod,
    /// Who tells the agent of the pods: the API server, or without one the manifests.
    pub(crate) cluster: Option<Cluster>,
    /// Their node.
    pub(crate) node: Node,
}

impl Ground {
    /// Makes the pods of a node, each with a server on [`PORT`].
    pub(crate) fn new(node: Node, cluster: Option<Cluster>) -> Result<Self> {
        let run = |spec: PodSpec| match &cluster {
            Some(cluster) => cluster.run(&node, spec),
            None => node.pod_with(spec),
        };
        let client = run(PodSpec::new("client").ambient())?;
        let server = run(PodSpec::new("server").ambient())?;
        let outside = run(PodSpec::new("outside"))?;
        if cluster.is_none() {
            node.apply(&[&client, &server, &outside])?;
        }
        let listen = format!("[::]:{PORT}");
        let mut servers = Vec::new();
        for pod in [&client, &server, &outside] {
            servers.push(pod.serve(&["--listen", &listen])?);
        }
        let mut command = node.command("server", &programs::find("meshgate-load")?)?;
        let mut on_node = Process::start_talking(
            "server on the node",
            command.args(["server", "--listen", &listen]),
        )?;
        on_node.await_line("ready")?;
        servers.push(on_node);
        Ok(Self {
            _servers: servers,
            client,
            server,
            outside,
            cluster,
            node,
        })
    }

    /// Starts the agent with the source of these pods.
    pub(crate) fn start_agent(&self) -> Result<Agent> {
        let Some(cluster) = &self.cluster else {
            return Agent::start(&self.node);
        };
        let kubeconfig = cluster.kubeconfig(User::Agent).display().to_string();
        Agent::start_with(&self.node, "kube", &["--kubeconfig", &kubeconfig])
    }

    /// The address of a place, as `from` calls it.
    pub(crate) fn address(&self, place: Place, family: Family) -> IpAddr {
        let of = |pod: &Pod| match family {
            Family::V4 => pod.v4(),
            Family::V6 => pod.v6(),
        };
        let subnet = self.node.subnet();
        match (place, family) {
            (Place::Client, _) => of(&self.client),
            (Place::Server, _) => of(&self.server),
            (Place::Outside, _) => of(&self.outside),
            (Place::Node, Family::V4) => Ipv4Addr::from([10, subnet as u8, 0, 1]).into(),
            // The X of fd00:X::1 is decimal: it reads as the one in 10.X.0.1.
            (Place::Node, Family::V6) => format!("fd00:{subnet}::1")
                .parse()
                .unwrap_or(Ipv6Addr::UNSPECIFIED.into()),
            (Place::Loopback, Family::V4) => Ipv4Addr::LOCALHOST.into(),
            (Place::Loopback, Family::V6) => Ipv6Addr::LOCALHOST.into(),
        }
    }
}

/// The running mesh: the processes end before the ground is taken away.
pub(crate) struct Scene {
    /// The agent.
    pub(crate) agent: Agent,
    /// The proxy.
    pub(crate) proxy: Proxy,
    /// Where all this happens.
    pub(crate) ground: Ground,
}

impl Scene {
    /// Waits until client and server are captured and served.
    pub(crate) fn wait_until_captured(&mut self) -> Result<()> {
        for pod in [&self.ground.client, &self.ground.server] {
            self.agent.wait_for_pod_state(pod.uid(), "enabled")?;
        }
        Ok(())
    }

    /// Waits until the API server shows it too; false without one.
    pub(crate) fn wait_for_annotations(&self) -> Result<bool> {
        let Some(cluster) = &self.ground.cluster else {
            return Ok(false);
        };
        for pod in [&self.ground.client, &self.ground.server] {
            cluster.wait_for_redirection(pod, Some("enabled"))?;
        }
        Ok(true)
    }

    /// Tries a connection.
    pub(crate) fn observe(&self, trial: &Trial, family: Family) -> Result<Seen> {
        let (counted, connections) = (self.counts()?, self.proxy.connections()?.len());
        let asked = SocketAddr::new(self.ground.address(trial.to, family), PORT).to_string();
        let arguments = ["connect", asked.as_str()];
        let report = match trial.from {
            Place::Client => self.ground.client.load(&arguments)?,
            Place::Server => self.ground.server.load(&arguments)?,
            Place::Outside => self.ground.outside.load(&arguments)?,
            Place::Node | Place::Loopback => self.ground.node.load(&arguments)?,
        };
        // The proxy logs before it forwards, so the log is complete once the client has its answer.
        let through = self.proxy.connections()?;
        Ok(Seen {
            outcome: outcome(&report),
            peer: address(&report["peer"]),
            client: address(&report["reply"]["accept"]).map(|client| client.ip()),
            through: through[connections..].iter().map(|c| c.direction).collect(),
            counted: risen(&counted, &self.counts()?),
        })
    }

    /// All counters of the pods; none once the maps are gone.
    fn counts(&self) -> Result<Counts> {
        if !self.ground.node.bpffs().join("meshgate").exists() {
            return Ok(Counts::new());
        }
        let rows = self.agent.cli_json(&["counters"])?;
        let rows = rows.as_array().context("counters: not a list")?;
        Ok(rows.iter().flat_map(counts_of).collect())
    }

    /// What a verb prints as a table.
    pub(crate) fn verb(&self, verb: &[&str]) -> Result<String> {
        let output = self.agent.cli(verb)?;
        let (out, err) = (
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        );
        ensure!(output.status.success(), "meshgate {}: {err}{out}", verb.join(" "));
        Ok(out)
    }

    /// Changes the label of the client and waits until agent and proxy have let it go.
    pub(crate) fn take_client_out(&mut self) -> Result<()> {
        let ground = &mut self.ground;
        ground.client.set_ambient(false);
        match &ground.cluster {
            Some(cluster) => cluster.update(&ground.client)?,
            None => ground.node.apply(&[&ground.client])?,
        }
        let uid = self.ground.client.uid().to_owned();
        self.agent.wait_for_pod_state(&uid, "outside")?;
        self.proxy.wait_for("the proxy to let the client go", |event| {
            matches!(event, Event::Del { uid: gone } if *gone == uid).then_some(())
        })
    }
}

/// `ok`, or what failed.
fn outcome(report: &Value) -> String {
    let said = |key: &str| report[key].as_str().unwrap_or("nothing").to_owned();
    match said("connect").as_str() {
        "ok" => said("read"),
        failed => failed.to_owned(),
    }
}

/// An address as the load tool prints it, never v4-mapped.
fn address(value: &Value) -> Option<SocketAddr> {
    let address: SocketAddr = value.as_str()?.parse().ok()?;
    Some(SocketAddr::new(address.ip().to_canonical(), address.port()))
}

/// The counters of one pod, under its name without its namespace.
fn counts_of(row: &Value) -> Vec<((String, String), u64)> {
    let pod = row["pod"].as_str().unwrap_or_default();
    let name = pod.rsplit('/').next().unwrap_or(pod);
    let counters = row["counters"].as_object().into_iter().flatten();
    let pairs =
        counters.filter_map(|(counter, value)| Some(((name.to_owned(), counter.clone()), value.as_u64()?)));
    pairs.collect()
}

fn risen(before: &Counts, after: &Counts) -> Counts {
    let rise = |(key, count): (&(String, String), &u64)| {
        let old = before.get(key).copied().unwrap_or(0);
        (*count > old).then(|| (key.clone(), count - old))
    };
    after.iter().filter_map(rise).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_outcome_is_the_first_thing_that_failed() {
        assert_eq!(outcome(&json!({"connect": "ECONNREFUSED"})), "ECONNREFUSED");
        assert_eq!(outcome(&json!({"connect": "ok", "read": "eof"})), "eof");
        assert_eq!(outcome(&json!({"connect": "ok", "read": "ok"})), "ok");
        assert_eq!(outcome(&json!({})), "nothing");
    }

    #[test]
    fn what_rose_is_told_by_pod_and_counter() {
        let row = |count: u64| json!({"pod": "default/client", "counters": {"a": count, "b": 1}});
        let counts = |count| counts_of(&row(count)).into_iter().collect::<Counts>();
        let rise: Counts = [(("client".to_owned(), "a".to_owned()), 2)].into();
        assert_eq!(risen(&counts(3), &counts(5)), rise);
    }
}
