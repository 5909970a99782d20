//! Every label and annotation that the agent reads or writes. Those of Istio keep Istio's names and meaning.

/// Label of a pod or namespace: [`DATAPLANE_MODE_AMBIENT`] or [`DATAPLANE_MODE_NONE`].
pub const DATAPLANE_MODE: &str = "istio.io/dataplane-mode";
/// Value of [`DATAPLANE_MODE`]: captured.
pub const DATAPLANE_MODE_AMBIENT: &str = "ambient";
/// Value of [`DATAPLANE_MODE`]: not captured, whatever the namespace says.
pub const DATAPLANE_MODE_NONE: &str = "none";

/// Annotation that Istio's injector leaves on a pod with a sidecar. Any value means that the sidecar captures.
pub const SIDECAR_STATUS: &str = "sidecar.istio.io/status";

/// Annotation that we write: whether the pod is captured. istiod takes only [`REDIRECTION_ENABLED`] as HBONE-capable.
pub const REDIRECTION: &str = "ambient.istio.io/redirection";
/// Value of [`REDIRECTION`]: captured, and the proxy serves the pod.
pub const REDIRECTION_ENABLED: &str = "enabled";
/// Value of [`REDIRECTION`]: captured, but the proxy has not accepted the pod yet.
pub const REDIRECTION_PENDING: &str = "pending";

/// Annotation of a pod, a boolean: connections from outside are not captured.
pub const BYPASS_INBOUND_CAPTURE: &str = "ambient.istio.io/bypass-inbound-capture";
/// Annotation of a pod, a boolean: whether its DNS questions go to the proxy; overrides the node's default.
pub const DNS_CAPTURE: &str = "ambient.istio.io/dns-capture";
/// Annotation of a pod, a list with commas: interfaces behind which virtual machines or containers of its own live.
pub const REROUTE_VIRTUAL_INTERFACES: &str = "istio.io/reroute-virtual-interfaces";

/// Annotation of the pod that the API server shows for a static pod: the UID that kubelet itself gave to that, and by
/// which container runtimes know it.
pub const STATIC_POD_UID: &str = "kubernetes.io/config.mirror";

/// Label of a pod or of a cluster's system namespace: the network that its addresses belong to.
pub const NETWORK: &str = "topology.istio.io/network";

/// Annotation of a pod, ours: how its application learns the address of a client.
pub const CLIENT_ADDRESS: &str = "meshgate.io/client-address";
/// Value of [`CLIENT_ADDRESS`]: the socket's functions tell it (the default).
pub const CLIENT_ADDRESS_SOCKET: &str = "socket";
/// Value of [`CLIENT_ADDRESS`]: the packets carry it too, for gVisor, Kata and packet filters in the pod.
pub const CLIENT_ADDRESS_WIRE: &str = "wire";

/// Every annotation of a pod that a rule reads.
pub const ANNOTATIONS: &[&str] = &[
    SIDECAR_STATUS,
    REDIRECTION,
    BYPASS_INBOUND_CAPTURE,
    DNS_CAPTURE,
    REROUTE_VIRTUAL_INTERFACES,
    STATIC_POD_UID,
    CLIENT_ADDRESS,
];
