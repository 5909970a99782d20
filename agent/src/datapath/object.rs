//! The object: loading the programs with the pinned maps, and making the copy of `inbound` for each pod.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use agent_common::flow::NETNS_PLACEHOLDER;
use agent_core::entry::NetnsCookie;
use aya::maps::MapInfo;
use aya::programs::{CgroupSockAddr, CgroupSockopt, Program, SockOps};
use aya::{Ebpf, EbpfLoader};
use aya_obj::generated::bpf_insn;

use super::pins::Pins;
use super::plan::{CgroupProgram, INBOUND, MAPS};
use super::program_log::{self, ProgramLog};
use crate::chain::chain;
use crate::sys::bpf;

/// The programs, built by `cargo xtask build-ebpf`; empty when this binary was built without them.
static OBJECT: &[u8] = aya::include_bytes_aligned!(env!("MESHGATE_EMBEDDED_OBJECT"));

/// `BPF_LD | BPF_DW | BPF_IMM`: the one instruction of two slots, a 64-bit constant.
const LOAD_CONSTANT: u8 = 0x18;

/// Why the programs cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// Plain `cargo build` leaves the programs out.
    #[error("this binary was built without the kernel programs; build it with: cargo xtask build")]
    NotBuiltIn,
    /// The object is not what this agent expects.
    #[error("the kernel programs are broken: {0}; rebuild with: cargo xtask build")]
    Broken(String),
    /// The kernel refuses them.
    #[error("the kernel refuses the programs: {0}; `meshgate preflight` says what this kernel lacks")]
    Refused(String),
    /// The maps that are pinned have another layout.
    #[error(
        "the pinned map {name} has another layout ({found}, expected {expected}): it is of another version; \
         remove it with: meshgate cleanup"
    )]
    OtherLayout {
        /// Name of the map.
        name: String,
        /// Its sizes.
        found: String,
        /// The sizes in this version.
        expected: String,
    },
}

/// The loaded programs.
pub struct Object {
    ebpf: Ebpf,
    inbound: Vec<bpf_insn>,
}

impl Object {
    /// Loads all programs; maps that are pinned are used, others are made and pinned. With `is_told` they tell each decision
    /// to [`Object::take_log`].
    ///
    /// # Errors
    /// See [`ObjectError`].
    pub fn load(pins: &Pins, is_told: bool) -> Result<Self, ObjectError> {
        if OBJECT.is_empty() {
            return Err(ObjectError::NotBuiltIn);
        }
        let paths: Vec<_> = MAPS.iter().map(|name| (*name, pins.map(name))).collect();
        check_layouts(&paths)?;
        let mut loader = EbpfLoader::new();
        for (name, path) in &paths {
            loader.map_pin_path(name, path.as_path());
        }
        program_log::prepare(&mut loader, is_told);
        let mut ebpf = loader
            .load(OBJECT)
            .map_err(|error| ObjectError::Refused(chain(&error)))?;
        for (name, program) in ebpf.programs_mut() {
            let loaded = match program {
                Program::CgroupSockAddr(program) => CgroupSockAddr::load(program),
                Program::CgroupSockopt(program) => CgroupSockopt::load(program),
                Program::SockOps(program) => SockOps::load(program),
                _ => continue,
            };
            loaded.map_err(|error| ObjectError::Refused(format!("{name}: {}", chain(&error))))?;
        }
        let inbound = relocated_inbound(&ebpf)?;
        Ok(Self { ebpf, inbound })
    }

    /// The reading side of what the programs tell.
    ///
    /// # Errors
    /// When it was taken before.
    pub fn take_log(&mut self) -> Result<ProgramLog, ObjectError> {
        ProgramLog::take(&mut self.ebpf).map_err(|error| ObjectError::Broken(chain(&error)))
    }

    /// A cgroup program's descriptor.
    ///
    /// # Errors
    /// When the object has no such program.
    pub fn program(&self, program: CgroupProgram) -> Result<OwnedFd, ObjectError> {
        let missing = || ObjectError::Broken(format!("no program {}", program.name));
        let fd = match self.ebpf.program(program.name).ok_or_else(missing)? {
            Program::CgroupSockAddr(loaded) => loaded.fd(),
            Program::CgroupSockopt(loaded) => loaded.fd(),
            Program::SockOps(loaded) => loaded.fd(),
            _ => return Err(missing()),
        };
        let fd = fd.map_err(|error| ObjectError::Broken(error.to_string()))?;
        fd.as_fd()
            .try_clone_to_owned()
            .map_err(|error| ObjectError::Refused(error.to_string()))
    }

    /// Whether this map is what is pinned there.
    #[must_use]
    pub fn is_pinned(&self, name: &str, at: &Path) -> bool {
        let ours = self
            .ebpf
            .map(name)
            .and_then(|map| map_data(map).ok()?.info().ok());
        let pinned = MapInfo::from_pin(at).ok();
        ours.is_some() && ours.map(|map| map.id()) == pinned.map(|map| map.id())
    }

    /// Pins a map that is not pinned any more.
    ///
    /// # Errors
    /// When there is no such map, or the kernel refuses.
    pub fn pin_map(&self, name: &str, to: &Path) -> Result<(), ObjectError> {
        let missing = || ObjectError::Broken(format!("no map {name}"));
        let map = map_data(self.ebpf.map(name).ok_or_else(missing)?)?;
        bpf::pin(map.fd(), to).map_err(|error| ObjectError::Refused(error.to_string()))
    }

    /// Loads the copy of `inbound` for the pod in this network namespace.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub fn inbound_for(&self, netns: NetnsCookie) -> io::Result<OwnedFd> {
        let mut instructions = self.inbound.clone();
        replace_constant(&mut instructions, NETNS_PLACEHOLDER, netns.0);
        bpf::load_sk_lookup(INBOUND, &instructions)
    }
}

/// The instructions of `inbound` with the maps of `ebpf` in place, still for no pod.
fn relocated_inbound(ebpf: &Ebpf) -> Result<Vec<bpf_insn>, ObjectError> {
    let broken = |error: &dyn std::error::Error| ObjectError::Broken(chain(error));
    let mut object = aya_obj::Object::parse(OBJECT).map_err(|error| broken(&error))?;
    let maps = std::mem::take(&mut object.maps);
    let sections: HashSet<usize> = object.functions.keys().map(|(section, _)| *section).collect();
    let mut fds = Vec::new();
    for (name, map) in &maps {
        let Some(loaded) = ebpf.map(name) else { continue };
        fds.push((name.as_str(), map_data(loaded)?.fd().as_fd().as_raw_fd(), map));
    }
    object
        .relocate_maps(fds.into_iter(), &sections)
        .map_err(|error| broken(&error))?;
    object.relocate_calls(&sections).map_err(|error| broken(&error))?;
    let program = object
        .programs
        .get(INBOUND)
        .ok_or_else(|| ObjectError::Broken(format!("no program {INBOUND}")))?;
    let mut instructions = object.functions[&program.function_key()].instructions.clone();
    if replace_constant(&mut instructions, NETNS_PLACEHOLDER, NETNS_PLACEHOLDER) == 0 {
        return Err(ObjectError::Broken(format!(
            "{INBOUND} has no place for the network namespace"
        )));
    }
    Ok(instructions)
}

/// The map behind aya's many types.
fn map_data(map: &aya::maps::Map) -> Result<&aya::maps::MapData, ObjectError> {
    use aya::maps::Map;
    match map {
        Map::HashMap(data)
        | Map::PerCpuHashMap(data)
        | Map::Array(data)
        | Map::SockHash(data)
        | Map::RingBuf(data)
        | Map::SkStorage(data) => Ok(data),
        other => Err(ObjectError::Broken(format!(
            "a map of an unexpected type: {other:?}"
        ))),
    }
}

/// Replaces a 64-bit constant; returns how often it stood there.
fn replace_constant(instructions: &mut [bpf_insn], from: u64, to: u64) -> usize {
    let halves = |value: u64| (value as u32 as i32, (value >> 32) as u32 as i32);
    let ((low, high), (new_low, new_high)) = (halves(from), halves(to));
    let mut replaced = 0;
    let mut at = 0;
    while at + 1 < instructions.len() {
        if instructions[at].code != LOAD_CONSTANT {
            at += 1;
            continue;
        }
        if instructions[at].src_reg() == 0 && (instructions[at].imm, instructions[at + 1].imm) == (low, high)
        {
            (instructions[at].imm, instructions[at + 1].imm) = (new_low, new_high);
            replaced += 1;
        }
        at += 2;
    }
    replaced
}

/// Refuses pinned maps whose sizes are not those of this version: reading them would be reading garbage.
fn check_layouts(paths: &[(&str, std::path::PathBuf)]) -> Result<(), ObjectError> {
    let object = aya_obj::Object::parse(OBJECT).map_err(|error| ObjectError::Broken(chain(&error)))?;
    for (name, path) in paths {
        let expected = object
            .maps
            .get(*name)
            .ok_or_else(|| ObjectError::Broken(format!("no map {name}")))?;
        let Ok(found) = MapInfo::from_pin(path) else {
            continue;
        };
        let sizes = |key: u32, value: u32| format!("key of {key}, value of {value} bytes");
        let found = sizes(found.key_size(), found.value_size());
        let expected = sizes(expected.key_size(), expected.value_size());
        if found != expected {
            return Err(ObjectError::OtherLayout {
                name: (*name).to_owned(),
                found,
                expected,
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instruction(code: u8, imm: i32) -> bpf_insn {
        bpf_insn {
            code,
            imm,
            ..aya_obj::copy_instructions(&[0; 8]).unwrap()[0]
        }
    }

    #[test]
    fn only_the_constant_itself_is_replaced() {
        let placeholder = [NETNS_PLACEHOLDER as u32 as i32, (NETNS_PLACEHOLDER >> 32) as i32];
        let mut code = vec![
            instruction(0xb7, placeholder[0]),
            instruction(LOAD_CONSTANT, placeholder[0]),
            instruction(0, placeholder[1]),
            instruction(LOAD_CONSTANT, placeholder[0]),
            instruction(0, 7),
            instruction(0x95, 0),
        ];
        assert_eq!(replace_constant(&mut code, NETNS_PLACEHOLDER, 0x1_0000_0002), 1);
        let constants: Vec<_> = code.iter().map(|instruction| instruction.imm).collect();
        assert_eq!(constants, [placeholder[0], 2, 1, placeholder[0], 7, 0]);
    }
}
