//! Work that waits for the disk or the kernel, on a thread beside the runtime.

/// Runs `work` to its end.
///
/// # Panics
/// With the panic of `work`.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}
