//! The server against proxies that behave as ztunnel does, or worse, over real sockets in a temporary folder.

mod client;
mod garbage;
mod handshake;
mod live;
mod node;
mod queues;
