//! The CNI plugin `meshgate-cni`.

fn main() {}
