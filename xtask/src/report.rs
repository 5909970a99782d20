//! What is in the BPF object, as its loader (aya) sees it: programs, where each attaches, how long it is.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use aya_obj::obj::{Object, ProgramSection};
use serde_json::json;

/// An object and its programs.
pub(crate) struct Report {
    path: PathBuf,
    bytes: usize,
    license: String,
    rows: Vec<Row>,
}

struct Row {
    name: String,
    section: String,
    instructions: usize,
}

impl Report {
    /// Reads an object.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let object = Object::parse(&bytes);
        let object = object.with_context(|| format!("{} is nothing that aya can load", path.display()))?;
        Ok(Self {
            path: path.to_owned(),
            bytes: bytes.len(),
            license: object.license.to_string_lossy().into_owned(),
            rows: rows(&object)?,
        })
    }

    /// For programs.
    pub(crate) fn json(&self) -> serde_json::Value {
        let row =
            |row: &Row| json!({"name": row.name, "type": row.section, "instructions": row.instructions});
        let programs: Vec<_> = self.rows.iter().map(row).collect();
        json!({"object": self.path, "bytes": self.bytes, "license": self.license, "programs": programs})
    }
}

/// For people.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self
            .rows
            .iter()
            .map(|row| row.name.len())
            .max()
            .unwrap_or(0)
            .max("PROGRAM".len());
        let section = self
            .rows
            .iter()
            .map(|row| row.section.len())
            .max()
            .unwrap_or(0)
            .max("TYPE".len());
        writeln!(f, "{:name$}  {:section$}  INSTRUCTIONS", "PROGRAM", "TYPE")?;
        for row in &self.rows {
            writeln!(
                f,
                "{:name$}  {:section$}  {:>12}",
                row.name, row.section, row.instructions
            )?;
        }
        let total: usize = self.rows.iter().map(|row| row.instructions).sum();
        writeln!(f, "{:name$}  {:section$}  {total:>12}", "total", "")?;
        write!(
            f,
            "{} ({} bytes, {})",
            self.path.display(),
            self.bytes,
            self.license
        )
    }
}

/// Programs, then functions that are no programs, by where they attach.
fn rows(object: &Object) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    let mut functions = object.functions.clone();
    for (name, program) in &object.programs {
        let function = functions.remove(&program.function_key());
        let instructions = function
            .with_context(|| format!("program {name} has no code"))?
            .instructions
            .len();
        rows.push(Row {
            name: name.clone(),
            section: section_name(&program.section),
            instructions,
        });
    }
    rows.extend(functions.into_values().map(|function| Row {
        name: function.name,
        section: "(function)".to_owned(),
        instructions: function.instructions.len(),
    }));
    rows.sort_by(|a, b| (&a.section, &a.name).cmp(&(&b.section, &b.name)));
    Ok(rows)
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
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let error = Report::read(&manifest).err().map(|error| error.to_string());
        assert!(error.is_some_and(|error| error.contains("nothing that aya can load")));
    }
}
