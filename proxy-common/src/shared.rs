//! Records in maps that programs on other CPUs read and write at the same time.

use core::{marker::PhantomData, ptr::NonNull};

use bytemuck::Pod;

/// A live record that somebody else may write at any moment. No reference to it is ever made: it is
/// reached by pointer, and each word of it by one volatile access. So the compiler neither reads a
/// word twice, which could give two values, nor takes a word for settled.
///
/// What several words say together is only as whole as they prove themselves to be.
#[derive(Debug)]
#[repr(transparent)]
pub struct Shared<'a, T> {
    at: NonNull<T>,
    record: PhantomData<&'a T>,
}

impl<T> Clone for Shared<'_, T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    /// The record that a map gave, if it gave one.
    ///
    /// # Safety
    ///
    /// `at` must be null or point to a record that lives for `'a`, and to which nobody makes a
    /// reference meanwhile.
    #[expect(
        unsafe_code,
        reason = "only the caller knows what the pointer leads to"
    )]
    #[inline(always)]
    pub unsafe fn new(at: *mut T) -> Option<Self> {
        NonNull::new(at).map(Self::at)
    }

    /// The record of one's own.
    #[inline(always)]
    pub const fn of(record: &'a mut T) -> Self {
        Self::at(NonNull::from_mut(record))
    }

    #[inline(always)]
    const fn at(at: NonNull<T>) -> Self {
        Self {
            at,
            record: PhantomData,
        }
    }

    /// Where the record is.
    #[inline(always)]
    pub(crate) const fn pointer(self) -> *mut T {
        self.at.as_ptr()
    }

    /// A part of such a record: a field, or an element of an array.
    ///
    /// # Safety
    ///
    /// `part` must point into a record that lives for `'a`, see [`Self::new`].
    #[expect(unsafe_code, reason = "the pointer's origin is not in its type")]
    #[inline(always)]
    pub(crate) const unsafe fn part(part: *mut T) -> Self {
        // SAFETY: a pointer into a record is not null.
        Self::at(unsafe { NonNull::new_unchecked(part) })
    }
}

/// What is read and written by one instruction.
pub trait Word: Pod {}

impl Word for u16 {}
impl Word for u32 {}
impl Word for u64 {}

impl<T: Word> Shared<'_, T> {
    /// Its value now.
    #[expect(unsafe_code, reason = "one volatile read")]
    #[inline(always)]
    pub fn load(self) -> T {
        // SAFETY: the record is live, and any bits are a value of it.
        unsafe { self.at.as_ptr().read_volatile() }
    }

    /// Sets its value.
    #[expect(unsafe_code, reason = "one volatile write")]
    #[inline(always)]
    pub fn store(self, value: T) {
        // SAFETY: the record is live.
        unsafe { self.at.as_ptr().write_volatile(value) }
    }
}

/// Gives each named field of a record as a [`Shared`] of its own.
macro_rules! fields {
    ($record:ty { $($field:ident: $type:ty,)* }) => {
        impl<'a> $crate::shared::Shared<'a, $record> {
            $(
                #[doc = concat!("Its field `", stringify!($field), "`.")]
                #[expect(unsafe_code, reason = "a field of what must not be referred to")]
                #[inline(always)]
                pub const fn $field(self) -> $crate::shared::Shared<'a, $type> {
                    // SAFETY: the record is live, nothing is read, and the field is in it.
                    unsafe { $crate::shared::Shared::part(&raw mut (*self.pointer()).$field) }
                }
            )*
        }
    };
}
pub(crate) use fields;

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Record {
        first: u16,
        second: u64,
    }

    fields! { Record { first: u16, second: u64, } }

    #[test]
    fn fields_are_read_and_written_where_they_are() {
        let mut record = Record::default();
        let shared = Shared::of(&mut record);
        shared.first().store(7);
        shared.second().store(u64::MAX);
        assert_eq!(
            (shared.first().load(), shared.second().load()),
            (7, u64::MAX)
        );
        assert_eq!((record.first, record.second), (7, u64::MAX));
    }

    #[test]
    fn what_a_map_does_not_have_is_none() {
        // SAFETY: null is allowed.
        #[expect(unsafe_code, reason = "as a map's answer")]
        let none = unsafe { Shared::<u32>::new(core::ptr::null_mut()) };
        assert!(none.is_none());
    }
}
