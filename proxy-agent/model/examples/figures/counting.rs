//! How many bytes a program holds.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

/// Bytes that are allocated.
static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, counted.
pub struct Counting;

#[expect(unsafe_code, reason = "an allocator cannot be written without")]
// SAFETY: hands every call on unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Bytes that are allocated now.
pub fn allocated() -> usize {
    ALLOCATED.load(Relaxed)
}
