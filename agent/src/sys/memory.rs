//! Memory that the start needed and what follows does not.

/// Gives free memory back to the kernel, which glibc otherwise keeps for what may come.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: may be called at any time, by any thread (malloc_trim(3)).
    unsafe {
        libc::malloc_trim(0);
    }
}
