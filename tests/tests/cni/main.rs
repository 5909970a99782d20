//! The CNI plugin and the agent behind it, called as a container runtime calls the plugin.

mod add;
mod istio;
mod log;
mod many;
mod policy;
mod scene;
