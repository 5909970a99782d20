//! Many pods at the same time, and whatever can happen to agent and proxy meanwhile: every `ADD` ends in success or in one
//! clear error, no pod is captured by half, and nothing is left behind.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tests::agent::Status;
use tests::cni::{Answer, Plugin};
use tests::{Pins, Pod, requires, tuning, wait};

use crate::scene::Scene;

/// As many as a node has at most, and kubelet's default is 110.
const MANY: usize = 250;
/// The agent answers within 4.5 s; the rest is the machine's time for so many processes at once.
const DEADLINE: Duration = Duration::from_secs(12);
/// Threads that may have been started meanwhile and wait for work.
const POOL: usize = 8;

/// A node with many sandboxes that nobody has added yet. The fields are dropped in this order.
struct Crowd {
    pods: Vec<Pod>,
    scene: Scene,
}

impl Crowd {
    fn new(mut scene: Scene, count: usize) -> Result<Self> {
        tuning::raise_open_files()?;
        let pods = (0..count).map(|number| scene.sandbox(&format!("web-{number}")));
        let pods = pods.collect::<Result<Vec<_>>>()?;
        scene.agent.wait_for("all pods to be known", |status| {
            (status.pods.len() == count).then_some(())
        })?;
        Ok(Self { pods, scene })
    }

    /// All at the same time. Every answer is success, or code 11 with a reason, and comes in time.
    fn add(&self) -> Result<Vec<Answer>> {
        let calls = self.pods.iter().map(|pod| self.scene.plugin.start_add(pod));
        let calls = calls.collect::<Result<Vec<_>>>()?;
        let answers = calls
            .into_iter()
            .map(tests::cni::Call::wait)
            .collect::<Result<Vec<_>>>()?;
        for (answer, pod) in answers.iter().zip(&self.pods) {
            ensure!(answer.took < DEADLINE, "{}: {answer:?}", pod.name());
            match answer.success {
                true => ensure!(answer.printed == Plugin::previous(pod), "{}", answer.printed),
                false => ensure!(
                    answer.printed["code"] == 11 && answer.error().len() > 40,
                    "{answer:?}"
                ),
            }
        }
        Ok(answers)
    }

    /// All are added, and that succeeds.
    fn add_all(&self) -> Result<()> {
        for answer in self.add()? {
            ensure!(answer.success, "{}", answer.error());
        }
        Ok(())
    }

    /// Waits until all pods are in this state, and looks whether everything of them is there.
    fn wait_until_all_are(&mut self, state: &str) -> Result<()> {
        self.wait_until(state, |status, count| count_of(status, state) == count)
    }

    /// Waits until no pod is captured by half: everything of each is there, with a proxy that serves it or without.
    fn wait_until_whole(&mut self) -> Result<()> {
        self.wait_until("pending or enabled", |status, count| {
            count_of(status, "pending") + count_of(status, "enabled") == count
        })
    }

    fn wait_until(&mut self, what: &str, check: impl Fn(&Status, usize) -> bool) -> Result<()> {
        let count = self.pods.len();
        self.scene
            .agent
            .wait_for(&format!("{count} pods to be {what}"), |status| {
                check(status, count).then_some(())
            })?;
        let pins = Pins::of(&self.scene.node);
        let rows = [
            pins.count("PODS")?,
            pins.count("NAMES")?,
            pins.link_names("pod").len(),
        ];
        ensure!(rows == [count; 3], "{rows:?}");
        ensure!(pins.count("ADDRESSES")? == 2 * count);
        Ok(())
    }

    /// All pods are deleted; waits until nothing of them is left.
    fn leave(&mut self) -> Result<()> {
        for pod in self.pods.drain(..) {
            self.scene.node.delete(&pod)?;
        }
        let gone = |status: &Status| status.pods.is_empty().then_some(());
        self.scene.agent.wait_for("all pods to be gone", gone)
    }

    fn holds(&mut self) -> Result<Holds> {
        let pins = Pins::of(&self.scene.node);
        let mut rows = pins.counts()?;
        rows.push(pins.link_names("pod").len());
        let agent = self.scene.agent.id().context("the agent runs")?;
        let proxy = self.scene.proxy.as_mut().context("a proxy runs")?.process().id();
        let [agent_files, proxy_files] = [agent, proxy].map(|pid| entries(pid, "fd"));
        Ok(Holds {
            agent_files,
            proxy_files,
            rows,
            threads: entries(agent, "task"),
        })
    }

    /// Waits until no more is held than before.
    fn assert_holds(&mut self, before: &Holds) -> Result<()> {
        // Descriptors are closed after it was told that their pods are gone.
        let released = wait::asking(wait::LIMIT, "everything to be released", || {
            let now = self.holds()?;
            let is_less = now.threads <= before.threads + POOL;
            Ok((is_less
                && Holds {
                    threads: before.threads,
                    ..now
                } == *before)
                .then_some(()))
        });
        released.with_context(|| format!("{before:?}, and now {:?}", self.holds()))
    }
}

/// What agent, proxy and kernel hold.
#[derive(Debug, PartialEq, Eq)]
struct Holds {
    agent_files: usize,
    proxy_files: usize,
    rows: Vec<usize>,
    threads: usize,
}

/// Entries of a folder of /proc: descriptors or threads.
fn entries(pid: u32, folder: &str) -> usize {
    fs::read_dir(format!("/proc/{pid}/{folder}")).map_or(0, Iterator::count)
}

fn count_of(status: &Status, state: &str) -> usize {
    status.pods.iter().filter(|pod| pod.state == state).count()
}

/// How many failed, after it was looked whether each of them gives one of these reasons.
fn failures(answers: &[Answer], reasons: &[&str]) -> Result<usize> {
    let errors: Vec<_> = answers
        .iter()
        .filter(|answer| !answer.success)
        .map(Answer::error)
        .collect();
    for error in &errors {
        ensure!(reasons.iter().any(|reason| error.contains(reason)), "{error}");
    }
    Ok(errors.len())
}

#[test]
fn many_pods_at_once_are_captured_and_leave_nothing_behind() -> Result<()> {
    if !requires::root("many_pods_at_once_are_captured_and_leave_nothing_behind") {
        return Ok(());
    }
    // One before, so that all that is there once is there.
    let mut first = Crowd::new(Scene::new()?, 1)?;
    first.add_all()?;
    first.leave()?;
    let before = first.holds()?;
    let mut crowd = Crowd::new(first.scene, MANY)?;
    crowd.add_all()?;
    let served = crowd.scene.served()?;
    ensure!(
        crowd.pods.iter().all(|pod| served.contains(pod.uid())),
        "{served:?}"
    );
    crowd.wait_until_all_are("enabled")?;
    // What a runtime asks again after it has lost its memory.
    crowd.add_all()?;
    crowd.leave()?;
    crowd.assert_holds(&before)
}

#[test]
fn an_agent_that_is_killed_while_many_pods_come_costs_none_of_them() -> Result<()> {
    if !requires::root("an_agent_that_is_killed_while_many_pods_come_costs_none_of_them") {
        return Ok(());
    }
    let mut crowd = Crowd::new(Scene::new()?, MANY)?;
    let calls = crowd.pods.iter().map(|pod| crowd.scene.plugin.start_add(pod));
    let calls = calls.collect::<Result<Vec<_>>>()?;
    crowd.scene.agent.wait_for("some pods to be captured", |status| {
        (count_of(status, "enabled") >= MANY / 5).then_some(())
    })?;
    crowd.scene.agent.restart()?;
    for (call, pod) in calls.into_iter().zip(&crowd.pods) {
        let answer = call.wait()?;
        ensure!(answer.success, "{}: {}", pod.name(), answer.error());
    }
    crowd.wait_until_all_are("enabled")
}

#[test]
fn many_pods_without_a_proxy_say_so_and_are_served_when_it_comes() -> Result<()> {
    if !requires::root("many_pods_without_a_proxy_say_so_and_are_served_when_it_comes") {
        return Ok(());
    }
    let mut crowd = Crowd::new(Scene::without_proxy()?, MANY)?;
    ensure!(failures(&crowd.add()?, &["no proxy is connected"])? == MANY);
    crowd.wait_until_all_are("pending")?;
    crowd.scene.start_proxy()?;
    crowd.wait_until_all_are("enabled")?;
    crowd.add_all()
}

#[test]
fn many_pods_of_a_proxy_that_takes_five_seconds_for_each_hear_that_it_is_slow() -> Result<()> {
    if !requires::root("many_pods_of_a_proxy_that_takes_five_seconds_for_each_hear_that_it_is_slow") {
        return Ok(());
    }
    let mut scene = Scene::without_proxy()?;
    scene.start_proxy_with(&["--ack-delay", "5000"])?;
    // Its answer to the snapshot is as slow, and the pods' turns come after that.
    scene
        .agent
        .wait_for("the proxy to have answered for its snapshot", |status| {
            let is_synced = |proxy: &Value| proxy["synced"] == true;
            status.proxies.iter().any(is_synced).then_some(())
        })?;
    let mut crowd = Crowd::new(scene, MANY)?;
    ensure!(
        failures(
            &crowd.add()?,
            &["the proxy has not answered yet: it is slow or busy"]
        )? == MANY
    );
    // It is not hung up on because it is slow: the first pods are served, and the others wait and are captured.
    crowd.wait_until_whole()?;
    crowd.scene.agent.wait_for("a pod to be served", |status| {
        (count_of(status, "enabled") > 0).then_some(())
    })
}

#[test]
fn a_slow_proxy_serves_one_pod_after_the_other_and_kubelets_retries_succeed() -> Result<()> {
    if !requires::root("a_slow_proxy_serves_one_pod_after_the_other_and_kubelets_retries_succeed") {
        return Ok(());
    }
    let mut scene = Scene::without_proxy()?;
    scene.start_proxy_with(&["--ack-delay", "400"])?;
    let mut crowd = Crowd::new(scene, 20)?;
    let failed = failures(
        &crowd.add()?,
        &["20 pods of this node wait", "pods of this node wait for it"],
    )?;
    ensure!((1..20).contains(&failed), "{failed} failed");
    crowd.wait_until_all_are("enabled")?;
    crowd.add_all()
}

#[test]
fn many_pods_of_a_proxy_that_refuses_every_third_are_served_at_last() -> Result<()> {
    if !requires::root("many_pods_of_a_proxy_that_refuses_every_third_are_served_at_last") {
        return Ok(());
    }
    let mut scene = Scene::without_proxy()?;
    scene.start_proxy_with(&["--refuse-pod", "3"])?;
    let mut crowd = Crowd::new(scene, MANY)?;
    failures(&crowd.add()?, &["refused on purpose"])?;
    crowd.wait_until_all_are("enabled")?;
    crowd.add_all()
}

#[test]
fn many_pods_of_a_proxy_that_reconnects_again_and_again_are_served_at_last() -> Result<()> {
    if !requires::root("many_pods_of_a_proxy_that_reconnects_again_and_again_are_served_at_last") {
        return Ok(());
    }
    let mut scene = Scene::without_proxy()?;
    scene.start_proxy_with(&["--hang-up-after", "700"])?;
    let mut crowd = Crowd::new(scene, MANY)?;
    let reasons = [
        "closed the connection",
        "no proxy is connected",
        "the proxy has not answered",
    ];
    failures(&crowd.add()?, &reasons)?;
    crowd.wait_until_all_are("enabled")
}
