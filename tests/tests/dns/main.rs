//! DNS capture: whoever asks a name server is answered by the proxy, in the name server's name.

mod bounds;
mod resolvers;
mod scene;
mod ways;
mod ztunnel;
