//! Tests of whole sources: files with real inotify, the API server as a fake that misbehaves and as the real program.

mod fake_api;
mod real_api;
mod view;

mod convert;
mod file;
mod kube;
mod real_kube;
