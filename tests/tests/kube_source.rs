//! The kube source and the writer of the annotation against a real API server: what the server does that no fake would.

use agent::ports::{PodEvents as _, PodStatus as _, Redirection};
use agent::source::connection::Connection;
use agent::source::events::KubeEvents;
use agent::source::kube::KubeSource;
use agent::source::status::KubeStatus;
use agent_core::announce::{Announcement, Reason};
use agent_core::facts::{Fact, SourceState};
use agent_core::ids::{NodeRef, PodRef};
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tests::cluster::{RBAC, User};
use tests::wait::LIMIT;
use tests::{Cluster, Node, PodSpec, requires};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// All that a source has told.
struct Listener {
    facts: mpsc::Receiver<Fact>,
    told: Vec<Fact>,
}

impl Listener {
    /// Follows a node as a user. The source works while [`Cluster::block_on`] does.
    fn follow(cluster: &Cluster, node: &Node, user: User) -> Result<Self> {
        let (sender, facts) = mpsc::channel(1024);
        let connection = Connection::new(Some(cluster.kubeconfig(user)));
        let node = NodeRef {
            cluster: "test".into(),
            name: node.name().to_owned(),
        };
        let source = KubeSource::new(connection, node);
        cluster.block_on(async move || drop(tokio::spawn(source.run(sender))))?;
        Ok(Self {
            facts,
            told: Vec::new(),
        })
    }

    /// Listens until a fact is the wanted one.
    fn until(&mut self, cluster: &Cluster, what: &str, wanted: impl Fn(&Fact) -> bool + Sync) -> Result<()> {
        cluster.block_on(async || {
            loop {
                let fact = timeout(LIMIT, self.facts.recv())
                    .await
                    .ok()
                    .flatten()
                    .with_context(|| format!("{what} was not told; told: {:#?}", self.told))?;
                self.told.push(fact.clone());
                if wanted(&fact) {
                    return Ok(());
                }
            }
        })?
    }

    fn count(&self, fact: &Fact) -> usize {
        self.told.iter().filter(|told| *told == fact).count()
    }
}

fn current(fact: &Fact) -> bool {
    *fact == Fact::SourceState(SourceState::Current)
}

/// A state of the source whose problem has this in it.
fn problem(fact: &Fact, part: &str) -> bool {
    matches!(fact, Fact::SourceState(SourceState::Stale { problem }) if problem.contains(part))
}

#[test]
fn a_watch_goes_on_where_it_was_when_the_control_plane_was_killed() -> Result<()> {
    let name = "a_watch_goes_on_where_it_was_when_the_control_plane_was_killed";
    let Some(assets) = requires::control_plane(name) else {
        return Ok(());
    };
    let node = Node::new()?;
    let mut cluster = Cluster::start(&node, &assets)?;
    cluster.create(node.name(), &PodSpec::new("a"))?;
    let mut listener = Listener::follow(&cluster, &node, User::Agent)?;
    listener.until(&cluster, "the lists", current)?;

    cluster.kill9();
    let away = |fact: &Fact| problem(fact, "cannot be reached");
    listener.until(&cluster, "the absence", away)?;
    cluster.restart()?;
    cluster.create(node.name(), &PodSpec::new("b"))?;
    let b = |fact: &Fact| matches!(fact, Fact::Pod(pod) if pod.pod.name == "b");
    listener.until(&cluster, "pod b", b)?;
    ensure!(listener.count(&Fact::PodsRelist) == 1, "{:#?}", listener.told);
    let gone = |fact: &Fact| matches!(fact, Fact::PodGone(_));
    ensure!(!listener.told.iter().any(gone), "{:#?}", listener.told);
    Ok(())
}

#[test]
fn each_right_of_the_agent_is_needed_and_together_they_are_enough() -> Result<()> {
    let name = "each_right_of_the_agent_is_needed_and_together_they_are_enough";
    let Some(assets) = requires::control_plane(name) else {
        return Ok(());
    };
    let node = Node::new()?;
    let cluster = Cluster::start(&node, &assets)?;
    let pod = pod_ref(&cluster.create(node.name(), &PodSpec::new("a"))?, "a");
    let rights = rights()?;
    ensure!(rights.len() == 9, "{rights:?}");
    for right in &rights {
        let fewer: Vec<&Right> = rights.iter().filter(|other| *other != right).collect();
        grant(&cluster, &rights, &fewer)?;
        let Right { resource, verb, .. } = right;
        let missing = format!("the agent may not {verb} {resource}:");
        if resource == "pods/status" {
            let refused = write(&cluster, &pod, Redirection::Enabled);
            let told = refused.err().context("it was written")?.to_string();
            ensure!(told.contains(&missing), "{told}");
        } else if resource == "events" {
            let refused = (1..=2).find_map(|count| announce(&cluster, &pod, count).err());
            let told = refused.context("it was written")?.to_string();
            ensure!(told.contains(&missing), "{told}");
        } else {
            let mut listener = Listener::follow(&cluster, &node, User::Agent)?;
            listener.until(&cluster, &missing, |fact| problem(fact, &missing))?;
        }
    }
    grant(&cluster, &rights, &rights.iter().collect::<Vec<_>>())?;
    Listener::follow(&cluster, &node, User::Agent)?.until(&cluster, "the lists", current)?;
    announce(&cluster, &pod, 1)?;
    announce(&cluster, &pod, 2)?;
    write(&cluster, &pod, Redirection::Enabled)
}

/// Writes an event as the agent, for the first time or again.
fn announce(cluster: &Cluster, pod: &PodRef, count: u32) -> Result<()> {
    let connection = Connection::new(Some(cluster.kubeconfig(User::Agent)));
    let announcement = Announcement {
        pod: pod.clone(),
        reason: Reason::CaptureFailed,
        note: "a test".to_owned(),
        count,
    };
    let events = KubeEvents::new(connection, "a-node".to_owned());
    Ok(cluster.block_on(async || events.publish(&announcement).await)??)
}

/// What may be done with a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Right {
    group: String,
    resource: String,
    verb: String,
}

/// The agent's rights, as they are delivered.
fn rights() -> Result<Vec<Right>> {
    let role = role()?;
    let texts = |value: &Value| -> Vec<String> {
        let all = value.as_array().into_iter().flatten();
        all.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut rights = Vec::new();
    for rule in role["rules"].as_array().into_iter().flatten() {
        let [group] = &texts(&rule["apiGroups"])[..] else {
            bail!("more or less than one API group: {rule}");
        };
        for resource in texts(&rule["resources"]) {
            rights.extend(texts(&rule["verbs"]).into_iter().map(|verb| Right {
                group: group.clone(),
                resource: resource.clone(),
                verb,
            }));
        }
    }
    Ok(rights)
}

fn role() -> Result<Value> {
    let objects: Vec<Value> = serde_saphyr::from_multiple(RBAC)?;
    let role = objects.into_iter().find(|object| object["kind"] == "ClusterRole");
    role.context("deploy/rbac.yaml has no ClusterRole")
}

/// Gives the agent these rights of `all`, and waits until the API server acts by it.
fn grant(cluster: &Cluster, all: &[Right], granted: &[&Right]) -> Result<()> {
    let rule = |right: &&Right| json!({"apiGroups": [right.group], "resources": [right.resource], "verbs": [right.verb]});
    let mut role = role()?;
    role["rules"] = granted.iter().map(rule).collect();
    cluster.apply(&role)?;
    all.iter().try_for_each(|right| {
        let (resource, subresource) = right.resource.split_once('/').unwrap_or((&right.resource, ""));
        let asked = json!({
            "group": right.group, "resource": resource, "subresource": subresource, "verb": right.verb,
        });
        cluster.wait_until_agent_may(&asked, granted.contains(&right))
    })
}

#[test]
fn the_annotation_is_written_to_the_pod_with_this_uid_only() -> Result<()> {
    let name = "the_annotation_is_written_to_the_pod_with_this_uid_only";
    let Some(assets) = requires::control_plane(name) else {
        return Ok(());
    };
    let node = Node::new()?;
    let cluster = Cluster::start(&node, &assets)?;
    let a = pod_ref(&cluster.create(node.name(), &PodSpec::new("a"))?, "a");
    let earlier = pod_ref("11111111-2222-3333-4444-555555555555", "a");
    let gone = pod_ref(a.uid.as_str(), "gone");
    let object =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "default"}});
    for (pod, state, expected) in [
        (&a, Redirection::Pending, json!("pending")),
        (&a, Redirection::Enabled, json!("enabled")),
        (&earlier, Redirection::Absent, json!("enabled")),
        (&gone, Redirection::Enabled, json!("enabled")),
        (&a, Redirection::Absent, Value::Null),
        (&a, Redirection::Absent, Value::Null),
        (&earlier, Redirection::Enabled, Value::Null),
    ] {
        write(&cluster, pod, state)?;
        let found = cluster.get(&object)?.context("pod a is gone")?;
        let written = &found["metadata"]["annotations"]["ambient.istio.io/redirection"];
        ensure!(*written == expected, "{pod} {state:?}: {written}");
    }
    Ok(())
}

fn pod_ref(uid: &str, name: &str) -> PodRef {
    PodRef {
        uid: uid.into(),
        namespace: "default".to_owned(),
        name: name.to_owned(),
    }
}

/// Writes the annotation as the agent.
fn write(cluster: &Cluster, pod: &PodRef, state: Redirection) -> Result<()> {
    let status = KubeStatus::new(Connection::new(Some(cluster.kubeconfig(User::Agent))));
    Ok(cluster.block_on(async || status.write(pod, state).await)??)
}
