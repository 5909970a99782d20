//! Messages of the container runtime interface (package `runtime.v1`), with the fields that tests use.

use std::collections::HashMap;

use prost::Message;

use super::Call;

/// Ties a request to its method and its answer.
macro_rules! methods {
    ($($service:literal $method:literal: $request:ident => $answer:ty;)*) => {
        $(impl Call for $request {
            const PATH: &'static str = concat!("/runtime.v1.", $service, "/", $method);
            type Answer = $answer;
        })*
    };
}

methods! {
    "RuntimeService" "Status": StatusRequest => StatusResponse;
    "RuntimeService" "RunPodSandbox": RunPodSandboxRequest => RunPodSandboxResponse;
    "RuntimeService" "StopPodSandbox": StopPodSandboxRequest => ();
    "RuntimeService" "RemovePodSandbox": RemovePodSandboxRequest => ();
    "RuntimeService" "PodSandboxStatus": PodSandboxStatusRequest => PodSandboxStatusResponse;
    "RuntimeService" "CreateContainer": CreateContainerRequest => CreateContainerResponse;
    "RuntimeService" "StartContainer": StartContainerRequest => ();
    "RuntimeService" "StopContainer": StopContainerRequest => ();
    "RuntimeService" "ContainerStatus": ContainerStatusRequest => ContainerStatusResponse;
    "ImageService" "ImageStatus": ImageStatusRequest => ImageStatusResponse;
}

/// Asks whether the runtime and its network are ready.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct StatusRequest {}

/// Its answer.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct StatusResponse {
    /// Always there.
    #[prost(message, optional, tag = "1")]
    pub status: Option<RuntimeStatus>,
}

/// State of the runtime.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RuntimeStatus {
    /// `RuntimeReady` and `NetworkReady`.
    #[prost(message, repeated, tag = "1")]
    pub conditions: Vec<RuntimeCondition>,
}

/// One aspect of it.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RuntimeCondition {
    /// Which.
    #[prost(string, tag = "1")]
    pub r#type: String,
    /// Whether it is so.
    #[prost(bool, tag = "2")]
    pub status: bool,
    /// Why not, for programs.
    #[prost(string, tag = "3")]
    pub reason: String,
    /// Why not, for people.
    #[prost(string, tag = "4")]
    pub message: String,
}

/// A sandbox to make.
#[derive(Clone, PartialEq, Message)]
pub struct PodSandboxConfig {
    /// Whose it is.
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<PodSandboxMetadata>,
    /// Host name within.
    #[prost(string, tag = "2")]
    pub hostname: String,
    /// Folder for the containers' logs.
    #[prost(string, tag = "3")]
    pub log_directory: String,
    /// What `/etc/resolv.conf` says within.
    #[prost(message, optional, tag = "4")]
    pub dns_config: Option<DnsConfig>,
    /// Ports of the node that lead to it.
    #[prost(message, repeated, tag = "5")]
    pub port_mappings: Vec<PortMapping>,
    /// What concerns Linux.
    #[prost(message, optional, tag = "8")]
    pub linux: Option<LinuxPodSandboxConfig>,
}

/// Names of a sandbox. The same pod's next sandbox has the next attempt.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PodSandboxMetadata {
    /// The pod's name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its UID.
    #[prost(string, tag = "2")]
    pub uid: String,
    /// Its namespace.
    #[prost(string, tag = "3")]
    pub namespace: String,
    /// Number of the sandbox among the pod's, from 0.
    #[prost(uint32, tag = "4")]
    pub attempt: u32,
}

/// Resolver's settings.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DnsConfig {
    /// Addresses of servers.
    #[prost(string, repeated, tag = "1")]
    pub servers: Vec<String>,
}

/// A port of the node that leads to a port of the pod, by TCP.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct PortMapping {
    /// The pod's.
    #[prost(int32, tag = "2")]
    pub container_port: i32,
    /// The node's.
    #[prost(int32, tag = "3")]
    pub host_port: i32,
}

/// What of a sandbox concerns Linux.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct LinuxPodSandboxConfig {
    /// Path of the pod's cgroup from the root of the hierarchy.
    #[prost(string, tag = "1")]
    pub cgroup_parent: String,
}

/// Makes a sandbox: network namespace, CNI plugins, pause container.
#[derive(Clone, PartialEq, Message)]
pub struct RunPodSandboxRequest {
    /// What it is to be.
    #[prost(message, optional, tag = "1")]
    pub config: Option<PodSandboxConfig>,
}

/// Its answer.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RunPodSandboxResponse {
    /// The sandbox.
    #[prost(string, tag = "1")]
    pub pod_sandbox_id: String,
}

/// Stops all of a sandbox and gives its addresses back.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct StopPodSandboxRequest {
    /// The sandbox.
    #[prost(string, tag = "1")]
    pub pod_sandbox_id: String,
}

/// Removes a sandbox with its containers.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RemovePodSandboxRequest {
    /// The sandbox.
    #[prost(string, tag = "1")]
    pub pod_sandbox_id: String,
}

/// Asks for a sandbox's state.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PodSandboxStatusRequest {
    /// The sandbox.
    #[prost(string, tag = "1")]
    pub pod_sandbox_id: String,
    /// Whether `info` is wanted.
    #[prost(bool, tag = "2")]
    pub verbose: bool,
}

/// Its answer.
#[derive(Clone, PartialEq, Message)]
pub struct PodSandboxStatusResponse {
    /// Always there.
    #[prost(message, optional, tag = "1")]
    pub status: Option<PodSandboxStatus>,
    /// What the runtime tells beside the interface; containerd has one key `info` with JSON.
    #[prost(map = "string, string", tag = "2")]
    pub info: HashMap<String, String>,
}

/// State of a sandbox.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PodSandboxStatus {
    /// Its addresses.
    #[prost(message, optional, tag = "5")]
    pub network: Option<PodSandboxNetworkStatus>,
}

/// Addresses of a sandbox.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PodSandboxNetworkStatus {
    /// The first.
    #[prost(string, tag = "1")]
    pub ip: String,
    /// The others.
    #[prost(message, repeated, tag = "2")]
    pub additional_ips: Vec<PodIp>,
}

/// An address.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PodIp {
    /// In text.
    #[prost(string, tag = "1")]
    pub ip: String,
}

/// Makes a container in a sandbox.
#[derive(Clone, PartialEq, Message)]
pub struct CreateContainerRequest {
    /// The sandbox.
    #[prost(string, tag = "1")]
    pub pod_sandbox_id: String,
    /// What it is to be.
    #[prost(message, optional, tag = "2")]
    pub config: Option<ContainerConfig>,
    /// What the sandbox was made from.
    #[prost(message, optional, tag = "3")]
    pub sandbox_config: Option<PodSandboxConfig>,
}

/// A container to make.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ContainerConfig {
    /// Its name.
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<ContainerMetadata>,
    /// What it runs.
    #[prost(message, optional, tag = "2")]
    pub image: Option<ImageSpec>,
    /// Arguments in place of the image's.
    #[prost(string, repeated, tag = "4")]
    pub args: Vec<String>,
    /// Its log, within the sandbox's folder.
    #[prost(string, tag = "11")]
    pub log_path: String,
}

/// Names of a container.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ContainerMetadata {
    /// Unique in the sandbox together with the attempt.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Number of the container among those of this name.
    #[prost(uint32, tag = "2")]
    pub attempt: u32,
}

/// An image by its name.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ImageSpec {
    /// The name.
    #[prost(string, tag = "1")]
    pub image: String,
}

/// Answer to [`CreateContainerRequest`].
#[derive(Clone, PartialEq, Eq, Message)]
pub struct CreateContainerResponse {
    /// The container.
    #[prost(string, tag = "1")]
    pub container_id: String,
}

/// Starts a container.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct StartContainerRequest {
    /// The container.
    #[prost(string, tag = "1")]
    pub container_id: String,
}

/// Stops a container.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct StopContainerRequest {
    /// The container.
    #[prost(string, tag = "1")]
    pub container_id: String,
    /// Seconds until SIGKILL.
    #[prost(int64, tag = "2")]
    pub timeout: i64,
}

/// Asks for a container's state.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ContainerStatusRequest {
    /// The container.
    #[prost(string, tag = "1")]
    pub container_id: String,
}

/// Its answer.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ContainerStatusResponse {
    /// Always there.
    #[prost(message, optional, tag = "1")]
    pub status: Option<ContainerStatus>,
}

/// State of a container.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ContainerStatus {
    /// 0 created, 1 running, 2 exited, 3 unknown.
    #[prost(int32, tag = "3")]
    pub state: i32,
    /// When it has exited.
    #[prost(int32, tag = "7")]
    pub exit_code: i32,
}

/// Asks for an image.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ImageStatusRequest {
    /// By its name.
    #[prost(message, optional, tag = "1")]
    pub image: Option<ImageSpec>,
}

/// Its answer.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ImageStatusResponse {
    /// None when there is no such image.
    #[prost(message, optional, tag = "1")]
    pub image: Option<Image>,
}

/// An image.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Image {
    /// Digest of its configuration.
    #[prost(string, tag = "1")]
    pub id: String,
}
