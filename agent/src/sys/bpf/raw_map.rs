//! A map by its bytes, for layouts that this build does not know.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use aya_obj::generated::{bpf_attr, bpf_cmd, bpf_map_info};

use super::{attr, bpf, get_pinned};

/// A map with one value for each key (not one for each CPU).
pub struct RawMap {
    fd: OwnedFd,
    key_size: usize,
    value_size: usize,
}

impl RawMap {
    /// Opens the map that is pinned there.
    ///
    /// # Errors
    /// `NotFound`; what the kernel says, for example when it is no map.
    pub fn open(pin: &Path) -> io::Result<Self> {
        let fd = get_pinned(pin)?;
        // SAFETY: integers and arrays of integers only.
        let mut info: bpf_map_info = unsafe { std::mem::zeroed() };
        let mut attr = attr();
        attr.info.bpf_fd = fd.as_fd().as_raw_fd() as u32;
        attr.info.info_len = size_of::<bpf_map_info>() as u32;
        attr.info.info = (&raw mut info) as u64;
        bpf(bpf_cmd::BPF_OBJ_GET_INFO_BY_FD, &mut attr)?;
        Ok(Self {
            fd,
            key_size: info.key_size as usize,
            value_size: info.value_size as usize,
        })
    }

    /// All keys, at a time when nobody else writes.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn keys(&self) -> io::Result<Vec<Vec<u8>>> {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        loop {
            let mut next = vec![0; self.key_size];
            let before = keys.last().map_or(std::ptr::null(), Vec::as_ptr);
            match self.element(bpf_cmd::BPF_MAP_GET_NEXT_KEY, before, next.as_mut_ptr()) {
                Ok(()) => keys.push(next),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(keys),
                Err(error) => return Err(error),
            }
        }
    }

    /// A value.
    ///
    /// # Errors
    /// `NotFound`; what the kernel says.
    pub fn get(&self, key: &[u8]) -> io::Result<Vec<u8>> {
        let mut value = vec![0; self.value_size];
        self.check(key, &value)?;
        self.element(bpf_cmd::BPF_MAP_LOOKUP_ELEM, key.as_ptr(), value.as_mut_ptr())?;
        Ok(value)
    }

    /// Makes or replaces a value.
    ///
    /// # Errors
    /// When its size is not the map's; what the kernel says.
    pub fn put(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.check(key, value)?;
        // The kernel only reads it.
        self.element(
            bpf_cmd::BPF_MAP_UPDATE_ELEM,
            key.as_ptr(),
            value.as_ptr().cast_mut(),
        )
    }

    fn check(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        if key.len() == self.key_size && value.len() == self.value_size {
            return Ok(());
        }
        let text = format!(
            "a key of {} and a value of {} bytes for a map of {} and {}",
            key.len(),
            value.len(),
            self.key_size,
            self.value_size
        );
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    }

    /// `key` is null or as long as the map's keys; `value` is as long as its values, or as its keys for the next key.
    fn element(&self, command: bpf_cmd, key: *const u8, value: *mut u8) -> io::Result<()> {
        let mut attr: bpf_attr = attr();
        {
            // SAFETY: the member of these commands; all members are plain integers.
            let element = unsafe { &mut attr.__bindgen_anon_2 };
            element.map_fd = self.fd.as_raw_fd() as u32;
            element.key = key as u64;
            element.__bindgen_anon_1.value = value as u64;
        }
        bpf(command, &mut attr).map(drop)
    }
}
