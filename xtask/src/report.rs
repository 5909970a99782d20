//! What is in the BPF object, as its loader (aya) sees it: programs, where each attaches, how long it is.

use std::path::Path;

use anyhow::Context as _;
use aya_obj::obj::{Object, ProgramSection};
use serde_json::json;

/// The programs of an object.
pub(crate) struct Report {
    rows: Vec<Row>,
    license: String,
}

struct Row {
    name: String,
    section: String,
    instructions: usize,
}

impl Report {
    /// Parses an object.
    pub(crate) fn of(bytes: &[u8]) -> anyhow::Result<Self> {
        let object = Object::parse(bytes)?;
        let mut rows = Vec::new();
        for (name, program) in &object.programs {
            let function = object.functions.get(&program.function_key());
            let function = function.with_context(|| format!("program {name} has no code"))?;
            rows.push(Row {
                name: name.clone(),
                section: section_name(&program.section),
                instructions: function.instructions.len(),
            });
        }
        let programs: Vec<_> = object
            .programs
            .values()
            .map(aya_obj::Program::function_key)
            .collect();
        let shared = object.functions.iter().filter(|(key, _)| !programs.contains(key));
        rows.extend(shared.map(|(_, function)| Row {
            name: function.name.clone(),
            section: "(function)".to_owned(),
            instructions: function.instructions.len(),
        }));
        rows.sort_by(|a, b| (&a.section, &a.name).cmp(&(&b.section, &b.name)));
        Ok(Self {
            rows,
            license: object.license.to_string_lossy().into_owned(),
        })
    }

    /// For people.
    pub(crate) fn table(&self) -> String {
        let width =
            |text: fn(&Row) -> usize, title: usize| self.rows.iter().map(text).max().unwrap_or(0).max(title);
        let name = width(|row| row.name.len(), "PROGRAM".len());
        let section = width(|row| row.section.len(), "TYPE".len());
        let mut lines = vec![format!("{:name$}  {:section$}  INSTRUCTIONS", "PROGRAM", "TYPE")];
        for row in &self.rows {
            lines.push(format!(
                "{:name$}  {:section$}  {:>12}",
                row.name, row.section, row.instructions
            ));
        }
        let total: usize = self.rows.iter().map(|row| row.instructions).sum();
        lines.push(format!("{:name$}  {:section$}  {total:>12}", "total", ""));
        lines.join("\n")
    }

    /// For programs.
    pub(crate) fn json(&self, path: &Path, bytes: usize) -> serde_json::Value {
        let programs: Vec<_> = self
            .rows
            .iter()
            .map(|row| json!({"name": row.name, "type": row.section, "instructions": row.instructions}))
            .collect();
        json!({"object": path, "bytes": bytes, "license": self.license, "programs": programs})
    }
}

/// The section's name in libbpf's words (docs.kernel.org/bpf/libbpf/program_types.html).
fn section_name(section: &ProgramSection) -> String {
    match section {
        ProgramSection::CgroupSockAddr { attach_type } => format!("cgroup/{attach_type:?}")
            .to_lowercase()
            .replace("udp", ""),
        ProgramSection::CgroupSockopt { attach_type } => {
            format!("cgroup/{attach_type:?}sockopt").to_lowercase()
        }
        ProgramSection::SkLookup => "sk_lookup".to_owned(),
        ProgramSection::SockOps => "sockops".to_owned(),
        ProgramSection::SchedClassifier => "tc".to_owned(),
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use aya_obj::programs::{CgroupSockAddrAttachType, CgroupSockoptAttachType};

    use super::*;

    #[test]
    fn sections_have_their_kernel_names() {
        let connect = ProgramSection::CgroupSockAddr {
            attach_type: CgroupSockAddrAttachType::Connect4,
        };
        assert_eq!(section_name(&connect), "cgroup/connect4");
        let peer = ProgramSection::CgroupSockAddr {
            attach_type: CgroupSockAddrAttachType::GetPeerName6,
        };
        assert_eq!(section_name(&peer), "cgroup/getpeername6");
        let receive = ProgramSection::CgroupSockAddr {
            attach_type: CgroupSockAddrAttachType::UDPRecvMsg4,
        };
        assert_eq!(section_name(&receive), "cgroup/recvmsg4");
        let option = ProgramSection::CgroupSockopt {
            attach_type: CgroupSockoptAttachType::Get,
        };
        assert_eq!(section_name(&option), "cgroup/getsockopt");
    }

    #[test]
    fn what_is_no_object_is_refused() {
        assert!(Report::of(b"not an ELF file").is_err());
    }
}
