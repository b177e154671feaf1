//! How much of the same a unit test does.

/// `all` of something, or `few` under Miri, where a step takes a thousand times as long.
pub(crate) const fn few_under_miri<T: Copy>(all: T, few: T) -> T {
    if cfg!(miri) { few } else { all }
}
