//! The examples stand in `examples/examples`, one file each.
