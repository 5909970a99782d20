//! Settings of the installer, in the words of Istio's chart and environment where they exist.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use agent_core::cni::conf::element::PluginType;
use agent_core::cni::conf::plan::{Mode, OWNED_FILE, STANDALONE_FILE};
use clap::Args;
use clap::builder::{BoolishValueParser, NonEmptyStringValueParser};

/// Where the plugin is on the node, for `run` and `cleanup`.
#[derive(Args, Clone, Debug)]
pub struct PluginPlaceArgs {
    /// Folder of the socket that the CNI plugin calls, and of the plugin's log
    #[arg(
        long,
        value_name = "DIR",
        env = "CNI_AGENT_RUN_DIR",
        default_value = "/var/run/istio-cni"
    )]
    pub cni_agent_run_dir: PathBuf,
    /// Folder of the node's CNI configurations
    #[arg(
        long,
        value_name = "DIR",
        env = "MOUNTED_CNI_NET_DIR",
        default_value = "/host/etc/cni/net.d"
    )]
    pub mounted_cni_net_dir: PathBuf,
    /// Folder of the node's CNI plugins
    #[arg(
        long,
        value_name = "DIR",
        env = "MESHGATE_CNI_BIN_TARGET",
        default_value = "/host/opt/cni/bin"
    )]
    pub cni_bin_target: PathBuf,
    /// CNI configuration that the plugin is put into; default: the first valid one. Not chained: the file that is made
    #[arg(long, value_name = "FILE", env = "CNI_CONF_NAME", value_parser = file_name())]
    pub cni_conf_name: Option<OsString>,
    /// Put the plugin into the configuration of the main plugin; false: into a file of its own, for Multus
    #[arg(long, value_name = "BOOL", env = "CHAINED_CNI_PLUGIN", default_value_t = true, num_args = 0..=1,
          default_missing_value = "true", action = clap::ArgAction::Set, value_parser = BoolishValueParser::new())]
    pub chained_cni_plugin: bool,
    /// Put the plugin into a copy of the main plugin's configuration, which sorts before that: it holds pods back also
    /// when the main plugin writes its own anew
    #[arg(long, value_name = "BOOL", env = "ISTIO_OWNED_CNI_CONFIG", default_value_t = false, num_args = 0..=1,
          default_missing_value = "true", action = clap::ArgAction::Set, value_parser = BoolishValueParser::new())]
    pub istio_owned_cni_config: bool,
    /// Name of that copy
    #[arg(
        long,
        value_name = "FILE",
        env = "ISTIO_OWNED_CNI_CONFIG_FILENAME",
        default_value = OWNED_FILE,
        value_parser = file_name()
    )]
    pub istio_owned_cni_config_filename: OsString,
}

impl PluginPlaceArgs {
    /// Which file is to have the plugin. An empty name is none, as charts write it.
    #[must_use]
    pub fn mode(&self) -> Mode {
        let named = self.cni_conf_name.clone();
        let owned = Some(self.istio_owned_cni_config_filename.clone()).filter(|name| !name.is_empty());
        match (self.chained_cni_plugin, self.istio_owned_cni_config) {
            (true, false) => Mode::Chained { file: named },
            (true, true) => Mode::Owned {
                primary: named,
                file: owned.unwrap_or_else(|| OWNED_FILE.into()),
            },
            (false, _) => Mode::Standalone {
                file: named.unwrap_or_else(|| STANDALONE_FILE.into()),
            },
        }
    }
}

/// What the installer does.
#[derive(Args, Clone, Debug)]
pub struct InstallArgs {
    /// Where the plugin is on the node
    #[command(flatten)]
    pub place: PluginPlaceArgs,
    /// Copy the CNI plugin to the node, and keep it in the node's CNI configuration
    #[arg(long, value_name = "BOOL", env = "MESHGATE_INSTALL_CNI", default_value_t = false, num_args = 0..=1,
          default_missing_value = "true", action = clap::ArgAction::Set, value_parser = BoolishValueParser::new())]
    pub install_cni: bool,
    /// Folder of the binaries that are copied
    #[arg(
        long,
        value_name = "DIR",
        env = "MESHGATE_CNI_BIN_SOURCE",
        default_value = "/opt/cni/bin"
    )]
    pub cni_bin_source: PathBuf,
    /// Type of the plugin in the configuration: meshgate-cni; or istio-cni, before Istio's agent comes back
    #[arg(
        long,
        value_name = "TYPE",
        env = "MESHGATE_CNI_PLUGIN_TYPE",
        default_value = "meshgate-cni",
        value_parser = plugin_type
    )]
    pub cni_plugin_type: PluginType,
    /// Let the group read CNI configurations that the agent makes (mode 0640, else 0600)
    #[arg(long, value_name = "BOOL", env = "CNI_CONF_GROUP_READ", default_value_t = false, num_args = 0..=1,
          default_missing_value = "true", action = clap::ArgAction::Set, value_parser = BoolishValueParser::new())]
    pub cni_conf_group_read: bool,
    /// Write a kubeconfig with the agent's token to the node, for Istio's plugin; ours needs none
    #[arg(long, value_name = "BOOL", env = "MESHGATE_WRITE_KUBECONFIG", default_value_t = false, num_args = 0..=1,
          default_missing_value = "true", action = clap::ArgAction::Set, value_parser = BoolishValueParser::new())]
    pub write_kubeconfig: bool,
    /// Mode of that file: octal (0600, 0o600), or decimal as Istio has it (384)
    #[arg(long, value_name = "MODE", env = "KUBECONFIG_MODE", default_value = "0600", value_parser = file_mode)]
    pub kubeconfig_mode: u32,
    /// Certificate authority of the API server in it; default: ca.crt of the service account
    #[arg(long, value_name = "FILE", env = "KUBE_CA_FILE", value_parser = os_string())]
    pub kube_ca_file: Option<OsString>,
    /// Let Istio's plugin trust any API server
    #[arg(long, value_name = "BOOL", env = "SKIP_TLS_VERIFY", default_value_t = false, num_args = 0..=1,
          default_missing_value = "true", action = clap::ArgAction::Set, value_parser = BoolishValueParser::new())]
    pub skip_tls_verify: bool,
    /// Folder of the service account's token and ca.crt
    #[arg(
        long,
        value_name = "DIR",
        env = "MESHGATE_SERVICE_ACCOUNT_DIR",
        default_value = "/var/run/secrets/kubernetes.io/serviceaccount"
    )]
    pub service_account_dir: PathBuf,
}

impl InstallArgs {
    /// Mode of CNI configurations that the agent makes.
    #[must_use]
    pub fn conf_mode(&self) -> u32 {
        if self.cni_conf_group_read { 0o640 } else { 0o600 }
    }
}

/// A variable that is set to nothing counts as not set: an empty value is refused by the parser, and the environment of
/// Istio's chart sets only what has a value.
fn os_string() -> impl clap::builder::TypedValueParser<Value = OsString> {
    use clap::builder::TypedValueParser as _;
    NonEmptyStringValueParser::new().map(OsString::from)
}

/// A name within the folder of configurations.
fn file_name() -> impl clap::builder::TypedValueParser<Value = OsString> {
    use clap::builder::TypedValueParser as _;
    os_string().try_map(|name| match Path::new(&name).file_name() == Some(&name) {
        true => Ok(name),
        false => Err("it is the name of a file within the folder of CNI configurations, without its path"),
    })
}

fn plugin_type(text: &str) -> Result<PluginType, String> {
    let found = PluginType::ALL.into_iter().find(|plugin| plugin.as_str() == text);
    found.ok_or_else(|| "it is meshgate-cni or istio-cni".to_owned())
}

/// Istio's chart writes the mode in decimal, people in octal.
fn file_mode(text: &str) -> Result<u32, String> {
    let octal = text
        .strip_prefix("0o")
        .or_else(|| text.strip_prefix('0').filter(|rest| !rest.is_empty()));
    let mode = octal.map_or_else(|| text.parse(), |octal| u32::from_str_radix(octal, 8));
    mode.ok()
        .filter(|mode| *mode <= 0o777)
        .ok_or_else(|| "it is not the mode of a file, such as 0600".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal_or_as_istio_writes_them() {
        for (text, mode) in [("0600", 0o600), ("0o640", 0o640), ("384", 0o600), ("0", 0)] {
            assert_eq!(file_mode(text), Ok(mode), "{text}");
        }
        for text in ["", "rw", "0888", "1000", "-1"] {
            assert!(file_mode(text).is_err(), "{text}");
        }
    }
}
