//! Pods that a real kubelet runs, made by kubectl, on a real cluster of one node which all tests here share.

mod crowd;
mod life;
mod namespaces;
mod outages;
mod probes;
mod scene;
mod shared;
