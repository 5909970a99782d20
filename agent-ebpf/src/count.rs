//! Counting decisions, by pod.

/// Adds one to a counter of the pod in `$netns`; not counted where no pod is enrolled.
macro_rules! count {
    ($netns:expr, $counter:ident) => {
        if let Some(counters) = crate::maps::COUNTERS.get_ptr_mut($netns) {
            // SAFETY: a per-CPU value, and the program does not migrate while it runs.
            unsafe { (*counters).$counter += 1 };
        }
    };
}
pub(crate) use count;
