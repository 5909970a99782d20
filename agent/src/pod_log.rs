//! Records of the log about a pod: its name, namespace and UID are fields, the same everywhere.

/// A record about a pod, of which `$pod` is the [`agent_core::ids::PodRef`]; the rest is as in [`tracing::info!`].
macro_rules! pod_log {
    ($level:ident, $pod:expr, $($record:tt)+) => {
        tracing::$level!(
            pod = $pod.name,
            namespace = $pod.namespace,
            uid = $pod.uid.as_str(),
            $($record)+
        )
    };
}
pub(crate) use pod_log;
