//! Bodies in Kubernetes' protobuf form, read into the JSON values that everything else works on.
//!
//! `kubectl create` of built-in kinds and most clients written in Go send them. Only reading is needed: every such client
//! accepts JSON as the answer. Source: Kubernetes' API concepts, "Protobuf encoding".

mod fields;
#[cfg(test)]
mod tests;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use prost::DecodeError;
use prost::encoding::{WireType, decode_key, decode_varint};
use serde_json::{Map, Value};

use fields::{Field, Said, Shape, Table};

/// What a body in this form begins with.
const MAGIC: &[u8] = b"k8s\0";

/// Why a body could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// It lacks Kubernetes' four bytes at its start.
    #[error("it does not begin with the bytes \"k8s\\0\" that mark Kubernetes' protobuf form")]
    NotMarked,
    /// It is of a kind that is read as JSON or YAML only.
    #[error(
        "{api_version:?} {kind:?} is not read in protobuf form; send it as application/json or application/yaml"
    )]
    UnknownKind {
        /// The apiVersion found.
        api_version: String,
        /// The kind found.
        kind: String,
    },
    /// The bytes are not protobuf.
    #[error("{0}")]
    Malformed(#[from] DecodeError),
    /// A field has a value that its type does not allow.
    #[error("{field}: {problem}")]
    Field {
        /// The field's name in JSON.
        field: &'static str,
        /// What is wrong.
        problem: String,
    },
}

/// Reads an object.
///
/// # Errors
///
/// When the bytes are not one object of a kind that is read in this form.
pub fn decode(bytes: &[u8]) -> Result<Value, Unreadable> {
    let envelope = bytes.strip_prefix(MAGIC).ok_or(Unreadable::NotMarked)?;
    let (mut type_meta, mut raw): (&[u8], &[u8]) = (&[], &[]);
    each(envelope, |number, wire| {
        match (number, wire) {
            (1, Wire::Bytes(bytes)) => type_meta = bytes,
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
        Ok(())
    })?;
    let api_version = text(type_meta, 1, "apiVersion")?;
    let kind = text(type_meta, 2, "kind")?;
    let Some(message) = Table::get().of_kind(&api_version, &kind) else {
        return Err(Unreadable::UnknownKind { api_version, kind });
    };
    let mut object = Map::new();
    object.insert("apiVersion".to_owned(), api_version.into());
    object.insert("kind".to_owned(), kind.into());
    read(message, raw, &mut object)?;
    Ok(Value::Object(object))
}

/// A value as it is on the wire.
enum Wire<'a> {
    Number(u64),
    Fixed(u64),
    Bytes(&'a [u8]),
}

/// Calls `visit` with each field of a message, in the order of the wire.
fn each<'a>(
    mut bytes: &'a [u8],
    mut visit: impl FnMut(u32, Wire<'a>) -> Result<(), Unreadable>,
) -> Result<(), Unreadable> {
    while !bytes.is_empty() {
        let (number, kind) = decode_key(&mut bytes)?;
        let wire = match kind {
            WireType::Varint => Wire::Number(decode_varint(&mut bytes)?),
            WireType::LengthDelimited => {
                let length = decode_varint(&mut bytes)?;
                Wire::Bytes(take(&mut bytes, length)?)
            }
            WireType::SixtyFourBit => Wire::Fixed(fixed(take(&mut bytes, 8)?)),
            WireType::ThirtyTwoBit => Wire::Fixed(fixed(take(&mut bytes, 4)?)),
            WireType::StartGroup | WireType::EndGroup => {
                return Err(Unreadable::Field {
                    field: "body",
                    problem: "groups are not part of Kubernetes' protobuf form".to_owned(),
                });
            }
        };
        visit(number, wire)?;
    }
    Ok(())
}

fn take<'a>(bytes: &mut &'a [u8], length: u64) -> Result<&'a [u8], Unreadable> {
    let taken = usize::try_from(length)
        .ok()
        .and_then(|length| bytes.split_at_checked(length));
    let Some((head, rest)) = taken else {
        return Err(Unreadable::Field {
            field: "body",
            problem: format!(
                "a value of {length} bytes is announced and {} are left",
                bytes.len()
            ),
        });
    };
    *bytes = rest;
    Ok(head)
}

fn fixed(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |sum, byte| (sum << 8) | u64::from(*byte))
}

/// Reads a message's fields into `into`. Numbers that the table does not have are left out, as every protobuf reader does.
fn read(message: &str, bytes: &[u8], into: &mut Map<String, Value>) -> Result<(), Unreadable> {
    let Some(fields) = Table::get().message(message) else {
        return Ok(());
    };
    each(bytes, |number, wire| {
        let Some(field) = fields.get(&number) else {
            return Ok(());
        };
        match (&field.shape, wire) {
            (Shape::Message(inner), Wire::Bytes(bytes)) if field.said == Said::Inline => {
                read(inner, bytes, into)?;
            }
            (Shape::List(shape), wire) => {
                let list = into
                    .entry(field.name)
                    .or_insert_with(|| Value::Array(Vec::new()));
                if let Value::Array(list) = list {
                    extend(field, shape, wire, list)?;
                }
            }
            (Shape::Map(shape), Wire::Bytes(entry)) => {
                let key = text(entry, 1, field.name)?;
                let value = part(entry, 2)?
                    .map_or_else(|| Ok(empty(shape)), |wire| value(field, shape, wire))?;
                let map = into
                    .entry(field.name)
                    .or_insert_with(|| Value::Object(Map::new()));
                if let Value::Object(map) = map {
                    map.insert(key, value);
                }
            }
            (shape, wire) => {
                let value = value(field, shape, wire)?;
                if !value.is_null() && (field.said != Said::NonZero || !is_zero(&value)) {
                    into.insert(field.name.to_owned(), value);
                }
            }
        }
        Ok(())
    })
}

/// Adds one element, or several where numbers come packed.
fn extend(
    field: &Field,
    shape: &Shape,
    wire: Wire<'_>,
    list: &mut Vec<Value>,
) -> Result<(), Unreadable> {
    match (shape, wire) {
        (Shape::Integer, Wire::Bytes(mut packed)) => {
            while !packed.is_empty() {
                list.push(integer(decode_varint(&mut packed)?));
            }
        }
        (shape, wire) => list.push(value(field, shape, wire)?),
    }
    Ok(())
}

fn value(field: &Field, shape: &Shape, wire: Wire<'_>) -> Result<Value, Unreadable> {
    let problem = |problem: String| Unreadable::Field {
        field: field.name,
        problem,
    };
    Ok(match (shape, wire) {
        (Shape::Text, Wire::Bytes(bytes)) => utf8(bytes, field.name)?.into(),
        (Shape::Flag, Wire::Number(number)) => (number != 0).into(),
        (Shape::Integer, Wire::Number(number)) => integer(number),
        (Shape::Double, Wire::Fixed(bits)) => f64::from_bits(bits).into(),
        (Shape::Bytes, Wire::Bytes(bytes)) => STANDARD.encode(bytes).into(),
        (Shape::Time, Wire::Bytes(bytes)) => time(bytes, "%Y-%m-%dT%H:%M:%SZ").map_err(problem)?,
        (Shape::MicroTime, Wire::Bytes(bytes)) => {
            time(bytes, "%Y-%m-%dT%H:%M:%S.%6fZ").map_err(problem)?
        }
        (Shape::Quantity, Wire::Bytes(bytes)) => text(bytes, 1, field.name)?.into(),
        (Shape::IntOrString, Wire::Bytes(bytes)) => match number(bytes, 1)? {
            0 => integer(number(bytes, 2)?),
            _ => text(bytes, 3, field.name)?.into(),
        },
        (Shape::Raw, Wire::Bytes(bytes)) => match part(bytes, 1)? {
            Some(Wire::Bytes(json)) if !json.is_empty() => {
                serde_json::from_slice(json).map_err(|error| problem(error.to_string()))?
            }
            _ => Value::Null,
        },
        (Shape::Message(inner), Wire::Bytes(bytes)) => {
            let mut object = Map::new();
            read(inner, bytes, &mut object)?;
            Value::Object(object)
        }
        (shape, _) => {
            return Err(problem(format!(
                "its value on the wire is not one of {shape:?}"
            )));
        }
    })
}

/// Two's complement in 64 bits, whatever the field's own width.
fn integer(number: u64) -> Value {
    number.cast_signed().into()
}

fn time(bytes: &[u8], format: &str) -> Result<Value, String> {
    // Go's zero time is an empty message.
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let seconds = number(bytes, 1).map_err(|error| error.to_string())?;
    let nanos = number(bytes, 2).map_err(|error| error.to_string())?;
    let nanos = i32::try_from(nanos.cast_signed()).map_err(|error| error.to_string())?;
    let time = Timestamp::new(seconds.cast_signed(), nanos).map_err(|error| error.to_string())?;
    Ok(time.strftime(format).to_string().into())
}

/// The last value of a field of a small message.
fn part(bytes: &[u8], wanted: u32) -> Result<Option<Wire<'_>>, Unreadable> {
    let mut found = None;
    each(bytes, |number, wire| {
        if number == wanted {
            found = Some(wire);
        }
        Ok(())
    })?;
    Ok(found)
}

fn number(bytes: &[u8], wanted: u32) -> Result<u64, Unreadable> {
    Ok(match part(bytes, wanted)? {
        Some(Wire::Number(number)) => number,
        _ => 0,
    })
}

fn text(bytes: &[u8], wanted: u32, field: &'static str) -> Result<String, Unreadable> {
    Ok(match part(bytes, wanted)? {
        Some(Wire::Bytes(bytes)) => utf8(bytes, field)?.to_owned(),
        _ => String::new(),
    })
}

fn utf8<'a>(bytes: &'a [u8], field: &'static str) -> Result<&'a str, Unreadable> {
    std::str::from_utf8(bytes).map_err(|error| Unreadable::Field {
        field,
        problem: format!("it is not valid UTF-8: {error}"),
    })
}

/// What a value is that the wire leaves out since it is zero.
fn empty(shape: &Shape) -> Value {
    match shape {
        Shape::Flag => false.into(),
        Shape::Integer => 0.into(),
        Shape::Message(_) => Value::Object(Map::new()),
        Shape::List(_) => Value::Array(Vec::new()),
        _ => "".into(),
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}
