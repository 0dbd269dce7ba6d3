//! Gives memory back to the system. The start needs more than serving does: whole lists pass
//! through, and the allocator keeps what they took.

/// Gives back what is free, where the allocator can (glibc).
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        #[expect(unsafe_code, reason = "the allocator's own call has no safe form")]
        // SAFETY: malloc_trim(3) has no preconditions and may be called from any thread.
        let returned = unsafe { libc::malloc_trim(0) };
        tracing::debug!(anything = returned != 0, "memory given back");
    }
}
