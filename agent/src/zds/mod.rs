//! ztunnel's protocol.
