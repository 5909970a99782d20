//! Memory that the start needed and what follows does not.

use std::fs;

/// Gives back to the kernel free memory, which glibc otherwise keeps for what may come, and code, most of which ran for the
/// last time: what is needed again comes back from the page cache, page by page.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: may be called at any time, by any thread (malloc_trim(3)).
    unsafe {
        libc::malloc_trim(0);
    }
    let Ok(program) = fs::read_link("/proc/self/exe") else {
        return;
    };
    let program = program.display().to_string();
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for (start, end) in maps.lines().filter_map(|line| code_of(line, &program)) {
        // SAFETY: pages of a file that this process cannot write to are as in the file whenever they are read again
        // (madvise(2), MADV_DONTNEED). Only code is taken, which has no relocations.
        unsafe {
            libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_DONTNEED);
        }
    }
}

/// Where code of this program is mapped, if the line of /proc/pid/maps tells of some.
fn code_of(line: &str, program: &str) -> Option<(usize, usize)> {
    let mut fields = line.split_ascii_whitespace();
    let (range, permissions) = (fields.next()?, fields.next()?);
    let (start, end) = range.split_once('-')?;
    let is_code = permissions == "r-xp" && fields.nth(3)? == program;
    let address = |text| usize::from_str_radix(text, 16).ok();
    is_code.then_some((address(start)?, address(end)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_of_the_program_itself_is_given_back() {
        let line =
            |permissions: &str, path: &str| format!("7f10-7f20 {permissions} 00001000 fe:00 42 {path}");
        assert_eq!(code_of(&line("r-xp", "/bin/m"), "/bin/m"), Some((0x7f10, 0x7f20)));
        for (permissions, path) in [
            ("r--p", "/bin/m"),
            ("rw-p", "/bin/m"),
            ("r-xp", "/lib/c.so"),
            ("r-xp", ""),
        ] {
            assert_eq!(
                code_of(&line(permissions, path), "/bin/m"),
                None,
                "{permissions} {path}"
            );
        }
    }

    #[test]
    fn the_program_goes_on_without_its_code_in_memory() {
        trim();
        assert_eq!("1".parse(), Ok(1));
    }
}
