//! The result of the plugins before this one: read in any version of the specification, printed in that of the
//! configuration. We add nothing to it.

use std::net::IpAddr;

use serde_json::{Map, Value, json};

use super::error::{CniError, Code};
use super::version::SpecVersion;

type Object = Map<String, Value>;

/// Keys of interfaces that versions before 1.1.0 do not know.
const INTERFACE_SINCE_1_1: [&str; 3] = ["mtu", "socketPath", "pciID"];
/// Keys of routes that versions before 1.1.0 do not know.
const ROUTE_SINCE_1_1: [&str; 5] = ["mtu", "advmss", "priority", "table", "scope"];

/// What a chain of plugins has done so far, in the shape of 1.1.0.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NetworkResult {
    /// `ips`.
    pub ips: Vec<IpConfig>,
    interfaces: Vec<Object>,
    routes: Vec<Object>,
    dns: Object,
}

/// An address that was given to the sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IpConfig {
    /// Index of its interface in `interfaces`.
    pub interface: Option<u32>,
    /// The address.
    pub address: IpAddr,
    /// Length of its network's prefix in bits.
    pub prefix: u8,
    /// The default gateway of its network.
    pub gateway: Option<IpAddr>,
}

/// A result that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("prevResult: {field} {problem}; the plugin before meshgate-cni in the chain has made it")]
pub struct ResultError {
    field: &'static str,
    problem: String,
}

impl From<ResultError> for CniError {
    fn from(error: ResultError) -> Self {
        Self::new(
            Code::Undecodable,
            "reading the result of the previous plugin",
            error.to_string(),
        )
    }
}

impl NetworkResult {
    /// Reads a result. Its shape tells its version: the runtime converts it to that of the configuration, but not every
    /// runtime did always.
    ///
    /// # Errors
    /// When a field that must be understood is not as the specification says.
    pub fn parse(result: &Value) -> Result<Self, ResultError> {
        let object = result
            .as_object()
            .ok_or_else(|| wrong("(all)", "is not an object"))?;
        let is_old = object.contains_key("ip4") || object.contains_key("ip6");
        let mut parsed = Self {
            dns: optional(object, "dns")?.unwrap_or_default(),
            ..Self::default()
        };
        if is_old {
            for family in ["ip4", "ip6"] {
                if let Some(ip) = optional(object, family)? {
                    parsed.ips.push(ip_config(&ip, "ip")?);
                    parsed.routes.extend(list(&ip, "routes")?);
                }
            }
            return Ok(parsed);
        }
        parsed.interfaces = list(object, "interfaces")?;
        parsed.routes = list(object, "routes")?;
        let ips = list(object, "ips")?;
        parsed.ips = ips
            .iter()
            .map(|ip| ip_config(ip, "address"))
            .collect::<Result<_, _>>()?;
        Ok(parsed)
    }

    /// What is printed to a runtime that speaks this version.
    #[must_use]
    pub fn print(&self, version: SpecVersion) -> Value {
        let mut printed = Object::new();
        printed.insert("cniVersion".to_owned(), version.as_str().into());
        printed.insert("dns".to_owned(), self.dns.clone().into());
        if version < SpecVersion::V0_3_0 {
            for (key, is_v4) in [("ip4", true), ("ip6", false)] {
                if let Some(ip) = self.ips.iter().find(|ip| ip.address.is_ipv4() == is_v4) {
                    printed.insert(key.to_owned(), self.old_ip(ip));
                }
            }
            return printed.into();
        }
        let lists = [
            (
                "interfaces",
                without(&self.interfaces, &INTERFACE_SINCE_1_1, version),
            ),
            ("ips", self.ips.iter().map(|ip| ip.print(version)).collect()),
            ("routes", without(&self.routes, &ROUTE_SINCE_1_1, version)),
        ];
        for (key, list) in lists {
            if !list.is_empty() {
                printed.insert(key.to_owned(), list.into());
            }
        }
        printed.into()
    }

    /// An address in the shape of 0.1.0 and 0.2.0, with the routes of its family.
    fn old_ip(&self, ip: &IpConfig) -> Value {
        let mut printed = Object::new();
        printed.insert("ip".to_owned(), ip.network().into());
        if let Some(gateway) = ip.gateway {
            printed.insert("gateway".to_owned(), gateway.to_string().into());
        }
        let of_family = |route: &&Object| {
            let destination = route.get("dst").and_then(Value::as_str).unwrap_or_default();
            destination.contains(':') == ip.address.is_ipv6()
        };
        let routes: Vec<_> = self.routes.iter().filter(of_family).cloned().collect();
        if !routes.is_empty() {
            printed.insert(
                "routes".to_owned(),
                without(&routes, &ROUTE_SINCE_1_1, SpecVersion::V0_2_0).into(),
            );
        }
        printed.into()
    }
}

impl IpConfig {
    fn network(&self) -> String {
        format!("{}/{}", self.address, self.prefix)
    }

    fn print(&self, version: SpecVersion) -> Value {
        let mut printed = Object::new();
        if version < SpecVersion::V1_0_0 {
            let family = if self.address.is_ipv4() { "4" } else { "6" };
            printed.insert("version".to_owned(), family.into());
        }
        if let Some(interface) = self.interface {
            printed.insert("interface".to_owned(), interface.into());
        }
        printed.insert("address".to_owned(), self.network().into());
        if let Some(gateway) = self.gateway {
            printed.insert("gateway".to_owned(), gateway.to_string().into());
        }
        printed.into()
    }
}

/// The objects, without keys that versions before 1.1.0 do not know.
fn without(objects: &[Object], since_1_1: &[&str], version: SpecVersion) -> Vec<Value> {
    let mut objects = objects.to_vec();
    if version < SpecVersion::V1_1_0 {
        for object in &mut objects {
            object.retain(|key, _| !since_1_1.contains(&key.as_str()));
        }
    }
    objects.into_iter().map(|object| json!(object)).collect()
}

fn ip_config(object: &Object, key: &'static str) -> Result<IpConfig, ResultError> {
    let network = text(object, key)?;
    let (address, prefix) =
        network_of(network).ok_or_else(|| wrong(key, format!("{network:?} is not ADDRESS/PREFIX")))?;
    let gateway = match text(object, "gateway")? {
        "" => None,
        gateway => {
            let parsed = gateway.parse::<IpAddr>();
            Some(parsed.map_err(|_| wrong("gateway", format!("{gateway:?} is not an address")))?)
        }
    };
    let interface = match object.get("interface") {
        None | Some(Value::Null) => None,
        Some(index) => {
            let index = index.as_u64().and_then(|index| u32::try_from(index).ok());
            Some(index.ok_or_else(|| wrong("interface", "is not an index"))?)
        }
    };
    Ok(IpConfig {
        interface,
        address,
        prefix,
        gateway: gateway.map(|gateway| gateway.to_canonical()),
    })
}

fn network_of(text: &str) -> Option<(IpAddr, u8)> {
    let (address, prefix) = text.split_once('/')?;
    let (address, prefix) = (address.parse::<IpAddr>().ok()?, prefix.parse::<u8>().ok()?);
    let longest = if address.is_ipv4() { 32 } else { 128 };
    (prefix <= longest).then_some((address, prefix))
}

fn text<'a>(object: &'a Object, key: &'static str) -> Result<&'a str, ResultError> {
    match object.get(key) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(wrong(key, "is not a text")),
    }
}

fn optional(object: &Object, key: &'static str) -> Result<Option<Object>, ResultError> {
    match object.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(inner)) => Ok(Some(inner.clone())),
        Some(_) => Err(wrong(key, "is not an object")),
    }
}

fn list(object: &Object, key: &'static str) -> Result<Vec<Object>, ResultError> {
    let items = match object.get(key) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(items)) => items,
        Some(_) => return Err(wrong(key, "is not a list")),
    };
    let objects = items.iter().map(|item| item.as_object().cloned());
    objects
        .collect::<Option<_>>()
        .ok_or_else(|| wrong(key, "has an entry that is not an object"))
}

fn wrong(field: &'static str, problem: impl Into<String>) -> ResultError {
    ResultError {
        field,
        problem: problem.into(),
    }
}

#[cfg(test)]
mod tests;
