//! The table of messages: which field has which number, name and type.
//!
//! `fields.txt` is made by `hack/protobuf-fields` from Kubernetes' published Go types.

use std::collections::HashMap;
use std::sync::OnceLock;

/// The type of a field.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Text,
    Flag,
    Integer,
    Double,
    /// Base64 in JSON.
    Bytes,
    /// RFC 3339 in whole seconds.
    Time,
    /// RFC 3339 in microseconds.
    MicroTime,
    Quantity,
    IntOrString,
    /// JSON inside a message of its own.
    Raw,
    Message(&'static str),
    List(Box<Shape>),
    /// Keys are always text.
    Map(Box<Shape>),
}

/// How a field's value is said in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    Always,
    /// A zero value is not said, as Go's `omitempty` and `omitzero`.
    NonZero,
    /// Its fields are said as if they were the parent's.
    Inline,
}

#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    pub(super) said: Said,
}

/// The fields of a message by number.
pub(super) type Message = HashMap<u32, Field>;

#[derive(Default)]
pub(super) struct Table {
    kinds: HashMap<(&'static str, &'static str), &'static str>,
    messages: HashMap<&'static str, Message>,
}

impl Table {
    /// Read from the text on the first use: most servers never see a protobuf body.
    pub(super) fn get() -> &'static Self {
        static TABLE: OnceLock<Table> = OnceLock::new();
        TABLE.get_or_init(|| {
            Self::parse(include_str!("fields.txt"))
                .expect("the table is part of the program, and a test reads it whole")
        })
    }

    /// The message of a kind.
    pub(super) fn of_kind(&self, api_version: &str, kind: &str) -> Option<&'static str> {
        // Registered in each group under the group's own version. Source: apimachinery's metav1.AddToGroupVersion.
        let api_version = if kind == "DeleteOptions" {
            "meta.k8s.io/v1"
        } else {
            api_version
        };
        self.kinds.get(&(api_version, kind)).copied()
    }

    pub(super) fn message(&self, name: &str) -> Option<&Message> {
        self.messages.get(name)
    }

    fn parse(text: &'static str) -> Result<Self, String> {
        let mut table = Self::default();
        let mut current = None;
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let words: Vec<&'static str> = line.split(' ').collect();
            match *words {
                ["kind", version, kind, message] => {
                    table.kinds.insert((version, kind), message);
                }
                ["message", name] => {
                    table.messages.entry(name).or_default();
                    current = Some(name);
                }
                [number, name, shape, said] => {
                    let message = current
                        .and_then(|name| table.messages.get_mut(name))
                        .ok_or_else(|| format!("{line:?} comes before any message"))?;
                    let number = number
                        .parse()
                        .map_err(|error| format!("{line:?}: {error}"))?;
                    let said = match said {
                        "always" => Said::Always,
                        "nonzero" => Said::NonZero,
                        "inline" => Said::Inline,
                        _ => return Err(format!("{line:?}: no such way to say a value")),
                    };
                    let shape = shape_of(shape);
                    message.insert(number, Field { name, shape, said });
                }
                _ => return Err(format!("{line:?} is neither kind, message nor field")),
            }
        }
        Ok(table)
    }
}

fn shape_of(word: &'static str) -> Shape {
    match word {
        "string" => Shape::Text,
        "bool" => Shape::Flag,
        "int" => Shape::Integer,
        "double" => Shape::Double,
        "bytes" => Shape::Bytes,
        "time" => Shape::Time,
        "microtime" => Shape::MicroTime,
        "quantity" => Shape::Quantity,
        "int-or-string" => Shape::IntOrString,
        "raw" => Shape::Raw,
        other => match (other.strip_prefix("list:"), other.strip_prefix("map:")) {
            (Some(element), _) => Shape::List(Box::new(shape_of(element))),
            (_, Some(value)) => Shape::Map(Box::new(shape_of(value))),
            _ => Shape::Message(other),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(shape: &Shape) -> Option<&'static str> {
        match shape {
            Shape::Message(name) => Some(name),
            Shape::List(inner) | Shape::Map(inner) => named(inner),
            _ => None,
        }
    }

    fn walk(table: &Table, name: &'static str, above: &mut Vec<&'static str>) {
        assert!(!above.contains(&name), "{name} contains itself: {above:?}");
        above.push(name);
        let message = table
            .message(name)
            .unwrap_or_else(|| panic!("{above:?}: no such message"));
        for inner in message.values().filter_map(|field| named(&field.shape)) {
            walk(table, inner, above);
        }
        above.pop();
    }

    #[test]
    fn every_message_named_exists_and_none_contains_itself() {
        let table = Table::parse(include_str!("fields.txt")).unwrap();
        assert!(table.kinds.len() > 25, "{}", table.kinds.len());
        for message in table.kinds.values() {
            walk(&table, message, &mut Vec::new());
        }
    }
}
