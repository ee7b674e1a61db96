//! Pure functions on JSON values that give the API its meaning: schemas, patches, server-side apply, selectors.
//!
//! Knows no storage, no HTTP and no clock; everything here is a function from values to values.

pub mod apply;
mod field_error;
pub mod names;
pub mod patch;
pub mod protobuf;
pub mod quantity;
pub mod schema;
pub mod selector;
mod strategic;
pub mod strict;

pub use field_error::{FieldError, FieldErrorKind};
