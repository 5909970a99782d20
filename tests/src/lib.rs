//! Fixtures: a node with pods, an agent, proxies and load, each in namespaces of its own and gone when dropped.
//! In reading order:

pub mod requires;

pub mod node;
pub mod pod;
pub mod spec;

pub mod agent;
pub mod cni;
pub mod proxy;

pub mod dns;
pub mod escape;
pub mod moments;
pub mod cluster;

pub mod containerd;
pub mod cri;
pub mod oci;

pub mod envoy;
pub mod iptables;
pub mod istio;
pub mod ipset;
pub mod ztunnel;

pub mod zds;

pub mod cgroup;
pub mod crowd;
pub mod full_node;
pub mod leftovers;
pub mod loss;
pub mod maps;
pub mod mesh;
pub mod netns;
pub mod node_state;
pub mod pins;
pub mod problems;
pub mod process;
pub mod programs;
pub mod pump;
pub mod scrape;
pub mod steady;
pub mod sys;
pub mod traffic;
pub mod tuning;
pub mod wait;

pub use agent::Agent;
pub use cluster::Cluster;
pub use cluster::one_node::OneNode;
pub use containerd::Containerd;
pub use full_node::FullNode;
pub use maps::Maps;
pub use mesh::Mesh;
pub use node::Node;
pub use pins::Pins;
pub use pod::Pod;
pub use proxy::Proxy;
pub use scrape::Scrape;
pub use spec::PodSpec;
