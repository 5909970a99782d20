//! Settings of what an operator looks at: health, metrics, log. Names and defaults are Istio's where it has them.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use clap::Args;
use clap::builder::BoolishValueParser;

/// Any address, of both families.
const ANY: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

/// Flags of health, metrics and log.
#[derive(Args, Clone, Debug)]
pub struct OpsArgs {
    /// TCP port of /healthz and /readyz; 0 or less: none
    #[arg(
        long,
        value_name = "PORT",
        env = "MESHGATE_HEALTH_PORT",
        default_value_t = 8000,
        allow_negative_numbers = true
    )]
    pub health_port: i32,
    /// Address that this port is opened on; :: is all addresses, IPv4 too
    #[arg(long, value_name = "IP", env = "MESHGATE_HEALTH_ADDRESS", default_value_t = ANY)]
    pub health_address: IpAddr,
    /// TCP port of /metrics; 0 or less: none
    #[arg(
        long,
        value_name = "PORT",
        env = "MONITORING_PORT",
        default_value_t = 15014,
        allow_negative_numbers = true
    )]
    pub monitoring_port: i32,
    /// Address that this port is opened on; :: is all addresses, IPv4 too
    #[arg(long, value_name = "IP", env = "MESHGATE_MONITORING_ADDRESS", default_value_t = ANY)]
    pub monitoring_address: IpAddr,
    /// Count decisions for each pod in /metrics too: twenty series for each pod
    #[arg(long, env = "MESHGATE_POD_METRICS", value_parser = BoolishValueParser::new())]
    pub pod_metrics: bool,
    /// What is logged: a level, and scope:level for parts of the agent, as in debug or info,zds:debug; as Istio's
    /// --log_output_level
    #[arg(
        long,
        value_name = "LEVELS",
        env = "MESHGATE_LOG",
        default_value = "info",
        aliases = ["log-output-level", "log_output_level"]
    )]
    pub log_level: String,
    /// Log each decision of the kernel programs too, in scope program: for finding a fault, at a cost for each connection
    #[arg(long, env = "MESHGATE_PROGRAM_LOG", value_parser = BoolishValueParser::new())]
    pub program_log: bool,
    /// Log lines of JSON
    #[arg(long, env = "MESHGATE_LOG_JSON", alias = "log_as_json", value_parser = BoolishValueParser::new())]
    pub log_as_json: bool,
}

impl OpsArgs {
    /// Where health is told; `None` if nowhere.
    ///
    /// # Errors
    /// When the port is none.
    pub fn health(&self) -> Result<Option<SocketAddr>, PortError> {
        endpoint("--health-port", self.health_address, self.health_port)
    }

    /// Where metrics are told; `None` if nowhere.
    ///
    /// # Errors
    /// When the port is none.
    pub fn monitoring(&self) -> Result<Option<SocketAddr>, PortError> {
        endpoint("--monitoring-port", self.monitoring_address, self.monitoring_port)
    }
}

/// A number that is no TCP port.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{flag} {port} is no TCP port: give 1 up to 65535, or 0 for none")]
pub struct PortError {
    flag: &'static str,
    port: i32,
}

fn endpoint(flag: &'static str, ip: IpAddr, port: i32) -> Result<Option<SocketAddr>, PortError> {
    if port <= 0 {
        return Ok(None);
    }
    let port = u16::try_from(port).map_err(|_| PortError { flag, port })?;
    Ok(Some(SocketAddr::new(ip, port)))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    /// The command line of `meshgate run`.
    #[derive(clap::Parser)]
    struct Run {
        #[command(flatten)]
        args: OpsArgs,
    }

    fn parsed(flags: &[&str]) -> OpsArgs {
        Run::parse_from([&["meshgate"], flags].concat()).args
    }

    #[test]
    fn ports_and_addresses_are_istios_unless_given() {
        let default = parsed(&[]);
        assert_eq!(default.health(), Ok(Some("[::]:8000".parse().unwrap())));
        assert_eq!(default.monitoring(), Ok(Some("[::]:15014".parse().unwrap())));
        let given = parsed(&["--health-address", "127.0.0.1", "--health-port", "81"]);
        assert_eq!(given.health(), Ok(Some("127.0.0.1:81".parse().unwrap())));
        for off in ["0", "-1"] {
            assert_eq!(
                parsed(&["--monitoring-port", off]).monitoring(),
                Ok(None),
                "{off}"
            );
        }
        let wrong = parsed(&["--monitoring-port", "70000"]).monitoring();
        assert!(wrong.unwrap_err().to_string().contains("--monitoring-port 70000"));
    }

    #[test]
    fn istios_names_of_the_log_flags_are_taken() {
        let istio = parsed(&["--log_output_level=default:info,cni-agent:debug", "--log_as_json"]);
        assert_eq!(istio.log_level, "default:info,cni-agent:debug");
        assert!(istio.log_as_json);
    }
}
