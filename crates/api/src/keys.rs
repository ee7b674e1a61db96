//! Typed keys: a label or an annotation knows what its value may be, and says so when it is something else.

use std::fmt;
use std::marker::PhantomData;

use jiff::Timestamp;
use kube::ResourceExt;

/// What the value of a label or an annotation may be.
pub trait Value: Sized {
    /// What is allowed, in words that end "…, but must be".
    const ALLOWED: &'static str;

    /// The value, if it is one that is allowed.
    fn parse(text: &str) -> Option<Self>;
}

/// A value that does not matter: that the key is there is what counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Presence;

impl Value for Presence {
    const ALLOWED: &'static str = "anything";

    fn parse(_: &str) -> Option<Self> {
        Some(Self)
    }
}

impl Value for String {
    const ALLOWED: &'static str = "any text";

    fn parse(text: &str) -> Option<Self> {
        Some(text.to_owned())
    }
}

impl Value for u32 {
    const ALLOWED: &'static str = "a number from 0 on";

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl Value for Timestamp {
    const ALLOWED: &'static str = "a time as in 2026-01-31T12:00:00Z";

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

/// A value that a key does not allow.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{object}: {what} {key} is {found:?}, but must be {allowed}")]
pub struct InvalidValue {
    object: String,
    what: &'static str,
    key: &'static str,
    found: String,
    allowed: &'static str,
}

macro_rules! typed_key {
    ($(#[$doc:meta])* $name:ident, $what:literal, $of:ident) => {
        $(#[$doc])*
        pub struct $name<T = String> {
            key: &'static str,
            value: PhantomData<fn() -> T>,
        }

        impl<T> Clone for $name<T> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<T> Copy for $name<T> {}

        impl<T> $name<T> {
            pub(crate) const fn new(key: &'static str) -> Self {
                Self {
                    key,
                    value: PhantomData,
                }
            }

            /// The key as it is written.
            pub const fn key(self) -> &'static str {
                self.key
            }

            /// Whether an object has it, with whatever value.
            pub fn is_on(self, object: &impl ResourceExt) -> bool {
                object.$of().contains_key(self.key)
            }

            /// Its value on an object, as it is written.
            pub fn text(self, object: &impl ResourceExt) -> Option<&str> {
                object.$of().get(self.key).map(String::as_str)
            }
        }

        impl<T: Value> $name<T> {
            /// Its value on an object.
            ///
            /// # Errors
            ///
            /// When the value is not one that is allowed; the text names object, key, value and what is allowed.
            pub fn read(self, object: &impl ResourceExt) -> Result<Option<T>, InvalidValue> {
                let Some(text) = self.text(object) else {
                    return Ok(None);
                };
                T::parse(text).map(Some).ok_or_else(|| InvalidValue {
                    object: object.name_any(),
                    what: $what,
                    key: self.key,
                    found: text.to_owned(),
                    allowed: T::ALLOWED,
                })
            }
        }

        impl<T> From<$name<T>> for String {
            fn from(key: $name<T>) -> Self {
                key.key.to_owned()
            }
        }

        impl<T> fmt::Display for $name<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.key)
            }
        }
    };
}

typed_key! {
    /// The key of a label whose value is a `T`.
    Label, "label", labels
}
typed_key! {
    /// The key of an annotation whose value is a `T`.
    Annotation, "annotation", annotations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Machine;

    #[test]
    fn a_wrong_value_is_told_with_object_key_value_and_what_is_allowed() {
        let key = Annotation::<Timestamp>::new("example.org/until");
        let mut machine = Machine::new("m", Default::default());
        assert_eq!(key.read(&machine), Ok(None));
        machine
            .annotations_mut()
            .insert(key.into(), "tomorrow".to_owned());
        assert_eq!(
            key.read(&machine).unwrap_err().to_string(),
            "m: annotation example.org/until is \"tomorrow\", but must be a time as in 2026-01-31T12:00:00Z"
        );
        machine
            .annotations_mut()
            .insert(key.into(), "1970-01-01T00:00:01Z".to_owned());
        assert_eq!(
            key.read(&machine),
            Ok(Some(Timestamp::from_second(1).unwrap()))
        );
    }
}
