//! The event that the plugin posts to the agent for each new sandbox, byte for byte as Istio's plugin prints it, so that
//! plugin and agent of either project understand each other.

use std::net::IpAddr;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::ids::{PodUid, SandboxPod};

use super::result::IpConfig;

/// Path of the request.
pub const PATH: &str = "/cmdadd";

/// A new sandbox, as the agent reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Which pod it is for. Istio's plugin does not tell the UID.
    pub pod: SandboxPod,
    /// Path of its network namespace, on the node.
    pub netns: String,
    /// Its addresses; never v4-mapped.
    pub addresses: Vec<IpAddr>,
}

/// Why an event cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum EventError {
    /// Not JSON.
    #[error("the event is not JSON: {0}")]
    NotJson(#[from] serde_json::Error),
    /// A field.
    #[error("the event's field {field} {problem}")]
    Field {
        /// Which.
        field: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
}

/// The event as Go prints it: names of fields as in Istio's source, no interface is null, no gateway an empty text, no
/// addresses at all null. Ours is the UID at the end, which Go's decoder ignores.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Sent<'a> {
    netns: &'a str,
    pod_name: &'a str,
    pod_namespace: &'a str,
    #[serde(rename = "IPs")]
    ips: Option<Vec<SentIp>>,
    #[serde(rename = "PodUID", skip_serializing_if = "Option::is_none")]
    pod_uid: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct SentIp {
    interface: Option<u32>,
    address: SentNetwork,
    gateway: String,
}

/// Go's `net.IPNet`.
#[derive(Serialize)]
struct SentNetwork {
    #[serde(rename = "IP")]
    ip: IpAddr,
    #[serde(rename = "Mask")]
    mask: String,
}

/// What is posted for a pod.
#[must_use]
pub fn encode(pod: &SandboxPod, netns: &str, ips: &[IpConfig]) -> String {
    let sent = Sent {
        netns,
        pod_name: &pod.name,
        pod_namespace: &pod.namespace,
        ips: (!ips.is_empty()).then(|| ips.iter().map(sent_ip).collect()),
        pod_uid: pod.uid.as_ref().map(PodUid::as_str),
    };
    serde_json::to_string(&sent).expect("texts and numbers are always JSON")
}

fn sent_ip(ip: &IpConfig) -> SentIp {
    SentIp {
        interface: ip.interface,
        address: SentNetwork {
            ip: ip.address,
            mask: base64(&mask(ip.address, ip.prefix)),
        },
        gateway: ip.gateway.map_or_else(String::new, |gateway| gateway.to_string()),
    }
}

/// The mask's bytes: as many as the address has.
fn mask(address: IpAddr, prefix: u8) -> Vec<u8> {
    match address {
        IpAddr::V4(_) => u32::MAX
            .checked_shl(32 - u32::from(prefix))
            .unwrap_or(0)
            .to_be_bytes()
            .to_vec(),
        IpAddr::V6(_) => u128::MAX
            .checked_shl(128 - u32::from(prefix))
            .unwrap_or(0)
            .to_be_bytes()
            .to_vec(),
    }
}

/// Base64 with padding (RFC 4648, section 4), as Go prints bytes.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let [a, b, c] = [0, 1, 2].map(|at| u32::from(chunk.get(at).copied().unwrap_or(0)));
        let bits = a << 16 | b << 8 | c;
        for at in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * at) & 63) as usize];
            text.push(if at <= chunk.len() { letter.into() } else { '=' });
        }
    }
    text
}

/// Reads an event. As in Go, the case of names does not matter and unknown ones are ignored; masks and gateways are not
/// read.
///
/// # Errors
/// When it is not JSON, or names no pod or no namespace to work on, or an address that is none.
pub fn decode(body: &[u8]) -> Result<Event, EventError> {
    let body: Value = serde_json::from_slice(body)?;
    let fields = body
        .as_object()
        .ok_or_else(|| wrong("(all)", "is not an object"))?;
    let uid = text(fields, "PodUID")?;
    Ok(Event {
        pod: SandboxPod {
            namespace: required(fields, "PodNamespace")?,
            name: required(fields, "PodName")?,
            uid: (!uid.is_empty()).then(|| PodUid::from(uid)),
        },
        netns: required(fields, "Netns")?,
        addresses: addresses(fields)?,
    })
}

fn addresses(fields: &Map<String, Value>) -> Result<Vec<IpAddr>, EventError> {
    match field(fields, "IPs") {
        None => Ok(Vec::new()),
        Some(Value::Array(ips)) => ips.iter().map(address).collect(),
        Some(_) => Err(wrong("IPs", "is not a list")),
    }
}

fn address(ip: &Value) -> Result<IpAddr, EventError> {
    let object = |value: Option<&Value>| value.and_then(Value::as_object).cloned();
    let network = object(Some(ip)).and_then(|ip| object(field(&ip, "Address")));
    let network = network.ok_or_else(|| wrong("IPs", "has an entry without Address"))?;
    let parsed = text(&network, "IP")?.parse::<IpAddr>();
    parsed
        .map(|ip| ip.to_canonical())
        .map_err(|_| wrong("IPs", "has an Address whose IP is none"))
}

fn required(fields: &Map<String, Value>, name: &'static str) -> Result<String, EventError> {
    match text(fields, name)? {
        "" => Err(wrong(name, "is missing or empty")),
        text => Ok(text.to_owned()),
    }
}

fn text<'a>(fields: &'a Map<String, Value>, name: &'static str) -> Result<&'a str, EventError> {
    match field(fields, name) {
        None => Ok(""),
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(wrong(name, "is not a text")),
    }
}

/// A field that is there and not null.
fn field<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    let found = fields.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value).filter(|value| !value.is_null())
}

const fn wrong(field: &'static str, problem: &'static str) -> EventError {
    EventError::Field { field, problem }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pod(uid: Option<&str>) -> SandboxPod {
        SandboxPod {
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            uid: uid.map(PodUid::from),
        }
    }

    fn ip(interface: Option<u32>, address: &str, prefix: u8, gateway: Option<&str>) -> IpConfig {
        IpConfig {
            interface,
            address: address.parse().unwrap(),
            prefix,
            gateway: gateway.map(|gateway| gateway.parse().unwrap()),
        }
    }

    #[test]
    fn an_event_is_printed_as_go_prints_it() {
        let ips = [
            ip(Some(2), "10.0.0.2", 24, Some("10.0.0.1")),
            ip(None, "10.0.0.3", 32, None),
            ip(None, "fd00::2", 64, None),
        ];
        let expected = concat!(
            r#"{"Netns":"/var/run/netns/a","PodName":"web","PodNamespace":"shop","IPs":["#,
            r#"{"Interface":2,"Address":{"IP":"10.0.0.2","Mask":"////AA=="},"Gateway":"10.0.0.1"},"#,
            r#"{"Interface":null,"Address":{"IP":"10.0.0.3","Mask":"/////w=="},"Gateway":""},"#,
            r#"{"Interface":null,"Address":{"IP":"fd00::2","Mask":"//////////8AAAAAAAAAAA=="},"Gateway":""}]}"#,
        );
        assert_eq!(encode(&pod(None), "/var/run/netns/a", &ips), expected);
        assert_eq!(
            encode(&pod(Some("u-1")), "/n", &[]),
            r#"{"Netns":"/n","PodName":"web","PodNamespace":"shop","IPs":null,"PodUID":"u-1"}"#
        );
    }

    #[test]
    fn masks_of_all_lengths_are_right_at_their_ends() {
        let of = |address: &str, prefix| mask(address.parse().unwrap(), prefix);
        assert_eq!(of("10.0.0.1", 0), [0; 4]);
        assert_eq!(of("10.0.0.1", 9), [255, 128, 0, 0]);
        assert_eq!(of("fd00::1", 0), [0; 16]);
        assert_eq!(of("fd00::1", 128), [255; 16]);
    }

    #[test]
    fn base64_has_the_padding_of_the_rfc() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn names_are_read_in_any_case_and_unknown_ones_ignored() {
        let body = br#"{"netns":"/n","PODNAME":"web","podNamespace":"shop","ips":[
            {"Interface":null,"address":{"ip":"::ffff:10.0.0.2","Mask":"////AA=="},"Gateway":""}],"New":1}"#;
        let expected = Event {
            pod: pod(None),
            netns: "/n".to_owned(),
            addresses: vec!["10.0.0.2".parse().unwrap()],
        };
        assert_eq!(decode(body).unwrap(), expected);
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        for (body, problem) in [
            ("", "not JSON"),
            ("7", "(all) is not an object"),
            ("{}", "PodNamespace is missing"),
            (r#"{"PodNamespace":"a","PodName":"b"}"#, "Netns is missing"),
            (r#"{"PodNamespace":"a","PodName":7}"#, "PodName is not a text"),
            (
                r#"{"PodNamespace":"a","PodName":"b","Netns":"/n","IPs":{}}"#,
                "IPs is not a list",
            ),
            (
                r#"{"PodNamespace":"a","PodName":"b","Netns":"/n","IPs":[{}]}"#,
                "without Address",
            ),
            (
                r#"{"PodNamespace":"a","PodName":"b","Netns":"/n","IPs":[{"Address":{"IP":"x"}}]}"#,
                "whose IP is none",
            ),
        ] {
            let error = decode(body.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(problem), "{body}: {error}");
        }
    }

    proptest! {
        #[test]
        fn the_agent_reads_what_the_plugin_says(
            names in ("[a-z0-9.-]{1,20}", "[a-z0-9.-]{1,20}", "/[ -~]{1,30}"),
            uid in proptest::option::of("[a-f0-9-]{1,36}"),
            v4 in proptest::collection::vec((any::<[u8; 4]>(), 0_u8..=32), 0..3),
            v6 in proptest::collection::vec((any::<[u16; 8]>(), 0_u8..=128), 0..3),
        ) {
            let v4 = v4.into_iter().map(|(bytes, prefix)| (IpAddr::from(bytes), prefix));
            let v6 = v6.into_iter().map(|(words, prefix)| (IpAddr::from(words).to_canonical(), prefix));
            let ips: Vec<_> = v4
                .chain(v6)
                .map(|(address, prefix)| IpConfig {
                    interface: None,
                    address,
                    prefix: if address.is_ipv4() { prefix.min(32) } else { prefix },
                    gateway: None,
                })
                .collect();
            let (namespace, name, netns) = names;
            let pod = SandboxPod { namespace, name, uid: uid.as_deref().map(PodUid::from) };
            let read = decode(encode(&pod, &netns, &ips).as_bytes()).unwrap();
            let addresses = ips.iter().map(|ip| ip.address).collect();
            prop_assert_eq!(read, Event { pod, netns, addresses });
        }

        #[test]
        fn garbage_never_panics(body in r#"[{}\[\]":,a-zA-Z0-9 ]{0,60}|.{0,40}"#) {
            let _ = decode(body.as_bytes());
        }
    }
}
