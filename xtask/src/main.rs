//! Every developer verb.

fn main() {}
