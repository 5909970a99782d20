//! bpf(2) where aya has no call: a program from instructions, links and their pins.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use aya_obj::generated::{bpf_attr, bpf_cmd, bpf_insn, bpf_link_info};

mod raw_map;

pub use raw_map::RawMap;

/// Where a link is attached: type of the hook, as `enum bpf_attach_type` (uapi/linux/bpf.h).
pub use aya_obj::generated::bpf_attach_type as AttachType;

/// Type of a program, as `enum bpf_prog_type` (uapi/linux/bpf.h).
pub use aya_obj::generated::bpf_prog_type as ProgramType;

fn bpf(cmd: bpf_cmd, attr: &mut bpf_attr) -> io::Result<i32> {
    // SAFETY: `attr` is a whole `bpf_attr`, zeroed where not set; pointers in it are valid for the call, as each caller
    // below keeps what they point to alive until it returns.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            cmd as libc::c_long,
            &raw mut *attr,
            size_of::<bpf_attr>(),
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result as i32)
    }
}

fn attr() -> bpf_attr {
    // SAFETY: a union of integers only: all zero is a value, and means "default" to the kernel.
    unsafe { std::mem::zeroed() }
}

fn fd(cmd: bpf_cmd, attr: &mut bpf_attr) -> io::Result<OwnedFd> {
    let fd = bpf(cmd, attr)?;
    // SAFETY: these commands return a new descriptor that nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// Loads an `sk_lookup` program. On refusal the error carries the end of the verifier's log.
///
/// # Errors
/// What the kernel says.
pub fn load_sk_lookup(name: &str, instructions: &[bpf_insn]) -> io::Result<OwnedFd> {
    let kind = (ProgramType::BPF_PROG_TYPE_SK_LOOKUP, AttachType::BPF_SK_LOOKUP);
    load(kind, name, instructions, &mut []).map_err(|error| {
        let log = refusal(kind, instructions).unwrap_or_default();
        let tail: Vec<_> = log.lines().rev().take(3).collect();
        io::Error::new(error.kind(), format!("{error}; verifier: {}", tail.join(" < ")))
    })
}

/// Offers a program to the kernel: `None` if it is taken (it is thrown away), else the verifier's log.
#[must_use]
pub fn refusal(kind: (ProgramType, AttachType), instructions: &[bpf_insn]) -> Option<String> {
    let mut log = vec![0_u8; 64 * 1024];
    let error = load(kind, "probe", instructions, &mut log).err()?;
    let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
    Some(format!("{error}\n{}", String::from_utf8_lossy(&log[..end])))
}

fn load(
    (kind, hook): (ProgramType, AttachType),
    name: &str,
    instructions: &[bpf_insn],
    log: &mut [u8],
) -> io::Result<OwnedFd> {
    let mut attr = attr();
    {
        // SAFETY: the member of this command; all members are plain integers.
        let program = unsafe { &mut attr.__bindgen_anon_3 };
        program.prog_type = kind as u32;
        program.expected_attach_type = hook as u32;
        program.insns = instructions.as_ptr() as u64;
        program.insn_cnt = instructions.len() as u32;
        program.license = c"Dual BSD/GPL".as_ptr() as u64;
        for (to, from) in program.prog_name.iter_mut().zip(name.bytes().take(15)) {
            *to = from as std::ffi::c_char;
        }
        if !log.is_empty() {
            program.log_level = 1;
            program.log_buf = log.as_mut_ptr() as u64;
            program.log_size = log.len() as u32;
        }
    }
    fd(bpf_cmd::BPF_PROG_LOAD, &mut attr)
}

/// Attaches a program to a cgroup or a network namespace. The link lives as long as its descriptors and pins.
///
/// # Errors
/// What the kernel says.
pub fn link_create(program: impl AsFd, target: impl AsFd, hook: AttachType) -> io::Result<OwnedFd> {
    let mut attr = attr();
    attr.link_create.__bindgen_anon_1.prog_fd = program.as_fd().as_raw_fd() as u32;
    attr.link_create.__bindgen_anon_2.target_fd = target.as_fd().as_raw_fd() as u32;
    attr.link_create.attach_type = hook as u32;
    fd(bpf_cmd::BPF_LINK_CREATE, &mut attr)
}

/// Replaces the program of a link, without a moment in which there is none.
///
/// # Errors
/// `ENOLINK` when what it was attached to is gone.
pub fn link_update(link: impl AsFd, program: impl AsFd) -> io::Result<()> {
    let mut attr = attr();
    attr.link_update.link_fd = link.as_fd().as_raw_fd() as u32;
    attr.link_update.__bindgen_anon_1.new_prog_fd = program.as_fd().as_raw_fd() as u32;
    bpf(bpf_cmd::BPF_LINK_UPDATE, &mut attr).map(drop)
}

/// What a link is attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkInfo {
    /// Id of the link.
    pub id: u32,
    /// Id of its program.
    pub program: u32,
    /// Id (inode) of the cgroup, or inode of the network namespace; 0 when that is gone.
    pub target: u64,
}

/// Asks the kernel what a link is attached to; cgroup and netns links only. It must be a link: for a map the kernel answers
/// too, in the same bytes.
///
/// # Errors
/// What the kernel says; `InvalidData` for links of other kinds.
pub fn link_info(link: impl AsFd) -> io::Result<LinkInfo> {
    // SAFETY: integers and unions of integers only.
    let mut info: bpf_link_info = unsafe { std::mem::zeroed() };
    let mut attr = attr();
    attr.info.bpf_fd = link.as_fd().as_raw_fd() as u32;
    attr.info.info_len = size_of::<bpf_link_info>() as u32;
    attr.info.info = (&raw mut info) as u64;
    bpf(bpf_cmd::BPF_OBJ_GET_INFO_BY_FD, &mut attr)?;
    // SAFETY: the kernel has filled in the member of the link's type; all are integers.
    let target = unsafe {
        match info.type_ {
            3 => info.__bindgen_anon_1.cgroup.cgroup_id,
            5 => u64::from(info.__bindgen_anon_1.netns.netns_ino),
            _ => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "neither a cgroup nor a netns link",
                ));
            }
        }
    };
    Ok(LinkInfo {
        id: info.id,
        program: info.prog_id,
        target,
    })
}

/// Whether the kernel has a link with this id.
#[must_use]
pub fn is_link(id: u32) -> bool {
    let mut attr = attr();
    attr.__bindgen_anon_6.__bindgen_anon_1.link_id = id;
    fd(bpf_cmd::BPF_LINK_GET_FD_BY_ID, &mut attr).is_ok()
}

/// Pins a map, program or link in a bpffs.
///
/// # Errors
/// `EEXIST` when the name is taken; what the kernel says.
pub fn pin(object: impl AsFd, to: &Path) -> io::Result<()> {
    let to = path(to)?;
    let mut attr = attr();
    {
        // SAFETY: the member of this command; all members are plain integers.
        let object_attr = unsafe { &mut attr.__bindgen_anon_4 };
        object_attr.bpf_fd = object.as_fd().as_raw_fd() as u32;
        object_attr.pathname = to.as_ptr() as u64;
    }
    bpf(bpf_cmd::BPF_OBJ_PIN, &mut attr).map(drop)
}

/// Opens what is pinned there.
///
/// # Errors
/// `NotFound`; what the kernel says.
pub fn get_pinned(from: &Path) -> io::Result<OwnedFd> {
    let from = path(from)?;
    let mut attr = attr();
    attr.__bindgen_anon_4.pathname = from.as_ptr() as u64;
    fd(bpf_cmd::BPF_OBJ_GET, &mut attr)
}
