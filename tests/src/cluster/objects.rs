//! Any object of the cluster, as JSON with `apiVersion`, `kind` and `metadata`: applied, patched, awaited, deleted.

use anyhow::{Context, Result, bail};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use serde_json::Value;
use tokio::time::timeout;

use super::Cluster;
use crate::wait::LIMIT;

/// Who changed what, in `managedFields`.
const FIELD_MANAGER: &str = "tests";

impl Cluster {
    /// Creates an object or makes it what is given (server-side apply), and returns what it has become.
    ///
    /// # Errors
    /// What the API server says.
    pub fn apply(&self, object: &Value) -> Result<Value> {
        let params = PatchParams::apply(FIELD_MANAGER).force();
        self.patched(object, "apply", async |api, name| {
            api.patch(name, &params, &Patch::Apply(object)).await
        })
    }

    /// Applies all objects of a YAML text.
    ///
    /// # Errors
    /// When it is no YAML, or as [`Cluster::apply`].
    pub fn apply_all(&self, yaml: &str) -> Result<()> {
        let objects: Vec<Value> = serde_saphyr::from_multiple(yaml)?;
        objects.iter().try_for_each(|object| self.apply(object).map(drop))
    }

    /// Changes what is given of an object (JSON merge patch: null removes), and returns what it has become.
    ///
    /// # Errors
    /// What the API server says.
    pub fn patch(&self, object: &Value) -> Result<Value> {
        self.patched(object, "patch", async |api, name| {
            api.patch(name, &PatchParams::default(), &Patch::Merge(object))
                .await
        })
    }

    /// Like [`Cluster::patch`] on the subresource `status`, as a kubelet reports.
    ///
    /// # Errors
    /// What the API server says.
    pub fn patch_status(&self, object: &Value) -> Result<Value> {
        self.patched(object, "patch status of", async |api, name| {
            api.patch_status(name, &PatchParams::default(), &Patch::Merge(object))
                .await
        })
    }

    /// What an object is now; `None` when there is none.
    ///
    /// # Errors
    /// What the API server says.
    pub fn get(&self, object: &Value) -> Result<Option<Value>> {
        self.call(async |client| {
            let (api, name) = api(client, object)?;
            let found = api.get_opt(name).await.with_context(|| format!("get {object}"))?;
            Ok(found.map(serde_json::to_value).transpose()?)
        })
    }

    /// Deletes an object at once, as a kubelet does at the end of a pod's life.
    ///
    /// # Errors
    /// What the API server says, for example that there is none.
    pub fn delete_object(&self, object: &Value) -> Result<()> {
        self.call(async |client| {
            let (api, name) = api(client, object)?;
            let params = DeleteParams::default().grace_period(0);
            api.delete(name, &params)
                .await
                .map(drop)
                .with_context(|| format!("delete {object}"))
        })
    }

    /// Waits until an object is there and `check` holds, by a watch.
    ///
    /// # Errors
    /// When it is not so within [`LIMIT`].
    pub fn wait_for(&self, object: &Value, what: &str, check: impl Fn(&Value) -> bool + Sync) -> Result<()> {
        let holds = |found: Option<&DynamicObject>| {
            found
                .and_then(|found| serde_json::to_value(found).ok())
                .is_some_and(|found| check(&found))
        };
        let waited = self.call(async |client| {
            let (api, name) = api(client, object)?;
            Ok(timeout(LIMIT, await_condition(api, name, holds)).await)
        })?;
        match waited {
            Ok(seen) => seen.map(drop).with_context(|| format!("watching for {what}")),
            Err(_) => {
                let mut now = self.get(object)?.unwrap_or_default();
                // Who changed what, at length.
                now["metadata"]["managedFields"].take();
                bail!("waited {LIMIT:?} for {what}; it is {now}")
            }
        }
    }

    fn patched(
        &self,
        object: &Value,
        verb: &str,
        patch: impl AsyncFnOnce(&Api<DynamicObject>, &str) -> kube::Result<DynamicObject> + Send,
    ) -> Result<Value> {
        self.call(async |client| {
            let (api, name) = api(client, object)?;
            let done = patch(&api, name)
                .await
                .with_context(|| format!("{verb} {object}"))?;
            Ok(serde_json::to_value(done)?)
        })
    }
}

/// The collection that an object is in, and its name there.
fn api(client: Client, object: &Value) -> Result<(Api<DynamicObject>, &str)> {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str);
    let required = |path: &str| text(path).with_context(|| format!("no {path} in {object}"));
    let api_version = required("/apiVersion")?;
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind = GroupVersionKind::gvk(group, version, required("/kind")?);
    let resource = ApiResource::from_gvk(&kind);
    let api = match text("/metadata/namespace") {
        Some(namespace) => Api::namespaced_with(client, namespace, &resource),
        None => Api::all_with(client, &resource),
    };
    Ok((api, required("/metadata/name")?))
}
