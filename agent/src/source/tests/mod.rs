//! Tests of whole sources: files with real inotify, and the API server as a fake that misbehaves; tests/tests/kube_source.rs
//! has the real one.

mod fake_api;
mod view;

mod convert;
mod file;
mod kube;
