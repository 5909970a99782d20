//! Network configurations of a node: a main plugin with its addresses, the plugins behind it, and ours as the last.

use serde_json::{Value, json};

use crate::node::Node;
use crate::spec::Families;

/// The device of the node on which [`Main::Macvlan`] puts its pods: [`uplink`] makes it.
const UPLINK: &str = "uplink";

/// How pods are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Main {
    /// A veth pair each, on a bridge of the node.
    Bridge,
    /// A veth pair each, routed.
    Ptp,
    /// A device each on a device of the node, past the node's own stack.
    Macvlan,
}

/// A configuration; its pods are in 10.X.1.0/24 and fd00:X:0:1::/64, where X is [`Node::subnet`].
#[derive(Clone, Debug)]
pub struct Network {
    subnet: u32,
    main: Main,
    families: Families,
    addresses: u32,
    more: Vec<Value>,
}

impl Network {
    /// A dual-stack network with ports of the node (portmap), and without our plugin.
    #[must_use]
    pub fn new(node: &Node, main: Main) -> Self {
        let mut more = Vec::new();
        // Its rules are in the node's stack, which macvlan's packets do not pass.
        if main != Main::Macvlan {
            more.push(json!({ "type": "portmap", "capabilities": { "portMappings": true }, "snat": true }));
        }
        Self {
            subnet: node.subnet(),
            main,
            families: Families::Dual,
            addresses: 200,
            more,
        }
    }

    /// With these address families.
    #[must_use]
    pub fn families(mut self, families: Families) -> Self {
        self.families = families;
        self
    }

    /// With no more addresses than these: the last one that was given back is the next that is given.
    #[must_use]
    pub fn addresses(mut self, count: u32) -> Self {
        self.addresses = count;
        self
    }

    /// With another plugin behind the others.
    #[must_use]
    pub fn then(mut self, plugin: Value) -> Self {
        self.more.push(plugin);
        self
    }

    /// With our plugin behind the others.
    #[must_use]
    pub fn with_meshgate(self, node: &Node) -> Self {
        self.then(meshgate(node))
    }

    /// The conflist.
    #[must_use]
    pub fn conflist(&self) -> Value {
        let mut main = match self.main {
            Main::Bridge => {
                json!({ "type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true })
            }
            Main::Ptp => json!({ "type": "ptp" }),
            Main::Macvlan => json!({ "type": "macvlan", "master": UPLINK, "mode": "bridge" }),
        };
        main["ipam"] = self.ipam();
        let plugins: Vec<_> = [main].into_iter().chain(self.more.iter().cloned()).collect();
        json!({ "cniVersion": "1.0.0", "name": "test", "plugins": plugins })
    }

    fn ipam(&self) -> Value {
        let x = self.subnet;
        let range = |subnet: String, start: String, end: String| json!([{ "subnet": subnet, "rangeStart": start, "rangeEnd": end }]);
        let (first, last) = (2, self.addresses + 1);
        let v4 = range(
            format!("10.{x}.1.0/24"),
            format!("10.{x}.1.{first}"),
            format!("10.{x}.1.{last}"),
        );
        let v6 = range(
            format!("fd00:{x}:0:1::/64"),
            format!("fd00:{x}:0:1::{first:x}"),
            format!("fd00:{x}:0:1::{last:x}"),
        );
        let (v4, v6) = (
            (v4, json!({ "dst": "0.0.0.0/0" })),
            (v6, json!({ "dst": "::/0" })),
        );
        let families = match self.families {
            Families::Dual => vec![v4, v6],
            Families::V4 => vec![v4],
            Families::V6 => vec![v6],
        };
        let (ranges, routes): (Vec<_>, Vec<_>) = families.into_iter().unzip();
        json!({ "type": "host-local", "ranges": ranges, "routes": routes })
    }
}

/// Our plugin, as an element of a conflist.
#[must_use]
pub fn meshgate(node: &Node) -> Value {
    let socket = node.plugin_socket();
    json!({
        "type": "meshgate-cni",
        "cni_agent_run_dir": socket.parent(),
        "exclude_namespaces": ["kube-system"],
        "pod_namespace": "istio-system",
    })
}

/// Makes the device that [`Main::Macvlan`] needs.
///
/// # Errors
/// When the kernel refuses it.
pub fn uplink(node: &Node) -> anyhow::Result<()> {
    node.netns()
        .ip(&format!(
            "link add {UPLINK} type veth peer name {UPLINK}-peer\nlink set {UPLINK} up\nlink set {UPLINK}-peer up\n"
        ))
}
