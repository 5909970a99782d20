//! Fixtures as objects of the cluster: what a user, a scheduler and a kubelet would say of them.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::Cluster;
use crate::node::Node;
use crate::pod::Pod;
use crate::spec::{PodSpec, namespace_manifest};

/// Annotation by which the agent tells that a pod is captured.
const REDIRECTION: &str = "ambient.istio.io/redirection";

impl Cluster {
    /// Makes a namespace with exactly these labels.
    ///
    /// # Errors
    /// What the API server says.
    pub fn namespace(&self, name: &str, labels: &[(&str, &str)]) -> Result<()> {
        let mut manifest = namespace_manifest(name, labels);
        only_what_users_write(&mut manifest);
        self.apply(&manifest).map(drop)
    }

    /// Makes the Node object of a node.
    ///
    /// # Errors
    /// What the API server says.
    pub fn node_object(&self, name: &str) -> Result<()> {
        self.apply(&node_reference(name)).map(drop)
    }

    /// Runs a pod on a node: makes its object, then its sandbox with the UID which the API server gave, then reports it
    /// as running with its addresses.
    ///
    /// # Errors
    /// When one of these fails.
    pub fn run(&self, node: &Node, spec: PodSpec) -> Result<Pod> {
        let uid = self.create(node.name(), &spec)?;
        let pod = node.pod_with(spec.uid(&uid))?;
        self.report(&pod, "Running")?;
        Ok(pod)
    }

    /// Makes the object of a pod that is to run on the node with this name, and returns its UID.
    ///
    /// # Errors
    /// What the API server says.
    pub fn create(&self, node: &str, spec: &PodSpec) -> Result<String> {
        let created = self.apply(&json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": spec.name,
                "namespace": spec.namespace,
                "labels": spec.labels,
                "annotations": spec.annotations,
            },
            "spec": {
                "nodeName": node,
                "serviceAccountName": "default",
                "containers": [{ "name": "application", "image": "example.com/application:1" }],
            },
        }))?;
        let uid = created["metadata"]["uid"]
            .as_str()
            .context("a pod without a UID")?;
        Ok(uid.to_owned())
    }

    /// Writes a pod's labels and annotations as they are now: those that were removed are removed.
    ///
    /// # Errors
    /// What the API server says.
    pub fn update(&self, pod: &Pod) -> Result<()> {
        let mut manifest = pod.manifest();
        only_what_users_write(&mut manifest);
        self.apply(&manifest).map(drop)
    }

    /// Reports a pod's phase and addresses, as its kubelet does.
    ///
    /// # Errors
    /// What the API server says.
    pub fn report(&self, pod: &Pod, phase: &str) -> Result<()> {
        let mut status = pod.manifest()["status"].clone();
        status["phase"] = json!(phase);
        let mut patch = reference(pod);
        patch["status"] = status;
        self.patch_status(&patch).map(drop)
    }

    /// Makes the sandbox of a pod anew, as a kubelet does after a crash of the old one: same UID, another network
    /// namespace, other addresses.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn renew_sandbox(&self, node: &Node, pod: Pod) -> Result<Pod> {
        let spec = pod.spec();
        drop(pod);
        let renewed = node.pod_with(spec)?;
        self.report(&renewed, "Running")?;
        Ok(renewed)
    }

    /// Deletes a pod's object; its sandbox is the caller's.
    ///
    /// # Errors
    /// When there is none.
    pub fn delete(&self, pod: &Pod) -> Result<()> {
        self.delete_object(&reference(pod))
    }

    /// The annotation `ambient.istio.io/redirection` of a pod.
    ///
    /// # Errors
    /// When there is no such pod.
    pub fn redirection(&self, pod: &Pod) -> Result<Option<String>> {
        let found = self.get(&reference(pod))?.context("no such pod")?;
        Ok(redirection(&found).map(str::to_owned))
    }

    /// Waits until the annotation `ambient.istio.io/redirection` has a value, or is absent.
    ///
    /// # Errors
    /// When it does not come in time.
    pub fn wait_for_redirection(&self, pod: &Pod, value: Option<&str>) -> Result<()> {
        let what = format!("annotation {REDIRECTION} of {} to be {value:?}", pod.name());
        self.wait_for(&reference(pod), &what, |found| redirection(found) == value)
    }
}

/// The object of a pod, by its name.
#[must_use]
pub fn reference(pod: &Pod) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": pod.name(), "namespace": pod.namespace() },
    })
}

/// The Node object of the node with this name.
#[must_use]
pub fn node_reference(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name } })
}

fn redirection(pod: &Value) -> Option<&str> {
    pod["metadata"]["annotations"][REDIRECTION].as_str()
}

/// Takes out of a manifest what only the API server and kubelets write.
fn only_what_users_write(manifest: &mut Value) {
    if let Some(object) = manifest.as_object_mut() {
        object.remove("status");
    }
    if let Some(metadata) = manifest["metadata"].as_object_mut() {
        metadata.remove("uid");
        metadata.remove("creationTimestamp");
    }
}
