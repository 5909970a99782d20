//! A node is switched over from Istio's agent while its pods run, and back.

mod back;
mod connections;
mod dns;
mod pods;
mod scene;
mod trouble;
