//! How the runtime calls: command and parameters in the environment (CNI specification 1.1.0, "Parameters").

use std::ffi::OsString;

use agent_core::cni::BINARY_MARK;
use agent_core::cni::error::{CniError, Code};
use agent_core::cni::version::SpecVersion;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Add,
    Del,
    Check,
    Gc,
    Status,
    Version,
}

impl Command {
    const ALL: [Self; 6] = [
        Self::Add,
        Self::Del,
        Self::Check,
        Self::Gc,
        Self::Status,
        Self::Version,
    ];

    /// Its name.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Add => "ADD",
            Self::Del => "DEL",
            Self::Check => "CHECK",
            Self::Gc => "GC",
            Self::Status => "STATUS",
            Self::Version => "VERSION",
        }
    }

    /// The first version of the specification that has it.
    pub(crate) fn since(self) -> SpecVersion {
        match self {
            Self::Add | Self::Del | Self::Version => SpecVersion::V0_1_0,
            Self::Check => SpecVersion::V0_4_0,
            Self::Gc | Self::Status => SpecVersion::V1_1_0,
        }
    }

    /// The parameters that a runtime must give, by the names of their variables.
    fn required(self) -> &'static [&'static str] {
        match self {
            Self::Add | Self::Check => &["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH"],
            Self::Del => &["CNI_CONTAINERID", "CNI_IFNAME", "CNI_PATH"],
            Self::Gc | Self::Status => &["CNI_PATH"],
            Self::Version => &[],
        }
    }
}

/// One call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Invocation {
    /// `CNI_COMMAND`.
    pub(crate) command: Command,
    /// `CNI_NETNS`: path of the sandbox's network namespace; there for [`Command::Add`].
    pub(crate) netns: String,
    /// `CNI_ARGS`; there for [`Command::Add`].
    pub(crate) args: String,
}

impl Invocation {
    /// Reads the call from the environment.
    ///
    /// # Errors
    /// When the command is unknown or lacks a parameter, or one that is used is no text: who the pod is might be in it.
    pub(crate) fn read(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, CniError> {
        let invalid = |details: String| {
            CniError::new(
                Code::InvalidEnvironment,
                "reading the environment variables",
                details,
            )
        };
        let given = |name: &str| variable(name).filter(|value| !value.is_empty());
        let text = |name: &str| {
            let text = given(name).unwrap_or_default().into_string();
            text.map_err(|text| invalid(format!("{name} is no UTF-8: {}", text.display())))
        };
        let name = text("CNI_COMMAND")?;
        if name.is_empty() {
            return Err(invalid(format!("CNI_COMMAND is not set: {BINARY_MARK}")));
        }
        let command = Command::ALL.into_iter().find(|command| command.as_str() == name);
        let command = command.ok_or_else(|| invalid(format!("CNI_COMMAND {name:?} is unknown")))?;
        let missing: Vec<_> = command
            .required()
            .iter()
            .filter(|name| given(name).is_none())
            .copied()
            .collect();
        if !missing.is_empty() {
            return Err(invalid(format!("{name} needs {}", missing.join(", "))));
        }
        // What only ADD uses stops no DEL.
        let for_add = |name: &str| match command {
            Command::Add => text(name),
            _ => Ok(String::new()),
        };
        Ok(Self {
            command,
            netns: for_add("CNI_NETNS")?,
            args: for_add("CNI_ARGS")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Invocation, CniError> {
        Invocation::read(|name| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn a_call_is_read_with_its_parameters() {
        let variables = [
            ("CNI_COMMAND", "ADD"),
            ("CNI_CONTAINERID", "c"),
            ("CNI_NETNS", "/n"),
            ("CNI_IFNAME", "eth0"),
            ("CNI_PATH", "/opt/cni/bin"),
            ("CNI_ARGS", "K=V"),
        ];
        let expected = Invocation {
            command: Command::Add,
            netns: "/n".to_owned(),
            args: "K=V".to_owned(),
        };
        assert_eq!(read(&variables), Ok(expected));
    }

    #[test]
    fn what_is_missing_is_named() {
        for (variables, problem) in [
            (&[][..], "CNI_COMMAND is not set"),
            (&[("CNI_COMMAND", "")], "CNI_COMMAND is not set"),
            (&[("CNI_COMMAND", "add")], r#"CNI_COMMAND "add" is unknown"#),
            (&[("CNI_COMMAND", "STATUS")], "STATUS needs CNI_PATH"),
            (
                &[("CNI_COMMAND", "ADD"), ("CNI_PATH", "/p"), ("CNI_NETNS", "")],
                "ADD needs CNI_CONTAINERID, CNI_NETNS, CNI_IFNAME",
            ),
            (
                &[("CNI_COMMAND", "DEL"), ("CNI_PATH", "/p")],
                "DEL needs CNI_CONTAINERID, CNI_IFNAME",
            ),
        ] {
            let error = read(variables).unwrap_err();
            assert_eq!(error.code, Code::InvalidEnvironment);
            assert!(error.details.contains(problem), "{error}");
        }
    }

    #[test]
    fn what_is_no_text_is_refused_where_it_is_used() {
        let args = OsString::from_vec(b"K8S_POD_NAME=caf\xe9".to_vec());
        let read = |command: &'static str| {
            Invocation::read(|name| match name {
                "CNI_COMMAND" => Some(command.into()),
                "CNI_ARGS" => Some(args.clone()),
                _ => Some("/x".into()),
            })
        };
        let error = read("ADD").unwrap_err();
        assert_eq!(error.code, Code::InvalidEnvironment);
        assert!(error.details.contains("CNI_ARGS is no UTF-8"), "{error}");
        assert_eq!(read("DEL").unwrap().command, Command::Del);
    }

    #[test]
    fn version_needs_nothing() {
        assert_eq!(
            read(&[("CNI_COMMAND", "VERSION")]).unwrap().command,
            Command::Version
        );
    }
}
