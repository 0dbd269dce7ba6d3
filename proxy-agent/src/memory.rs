//! Keeps the agent small. The start needs more memory than serving does: whole lists pass through,
//! and the allocator keeps what they took, in each of its arenas.

/// Two threads do all the work; arenas for more of them only keep memory from each other. To be
/// called before there is work for threads.
pub fn few_arenas() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        #[expect(unsafe_code, reason = "the allocator's own call has no safe form")]
        // SAFETY: mallopt(3) may be called at any time; it only limits arenas to come.
        let set = unsafe { libc::mallopt(libc::M_ARENA_MAX, 2) };
        tracing::debug!(done = set == 1, "arenas limited");
    }
}

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
