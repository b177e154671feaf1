//! Asking for memory before it is needed.

/// Has the processor fetch the line of memory at an address, which may be any: nothing is read. Without effect where
/// the standard library has no such call.
#[inline]
pub(crate) fn prefetch(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: PREFETCHT0 is a hint and faults at no address (Intel SDM volume 2, PREFETCHh); every x86_64 has it.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}
