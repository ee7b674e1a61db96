//! Label and field selectors: grammar, errors, matching.

use std::fmt;

use serde_json::Value;

use super::names;
use crate::storage::Stored;

/// Why a selector cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(String);

/// What a label must be.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule {
    In(Vec<String>),
    /// Also matches objects without the label.
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
    Greater(i64),
    Less(i64),
}

/// Requirements on labels, all of which must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<(String, Rule)>,
    nothing: bool,
}

impl LabelSelector {
    /// Reads the form of query parameters: `a=b,c!=d,e in (f,g),!h,i`.
    ///
    /// # Errors
    /// When it is malformed.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut requirements = Vec::new();
        for part in split_top_level(text) {
            let part = part.trim();
            if !part.is_empty() {
                requirements.push(requirement(part)?);
            }
        }
        Ok(Self {
            requirements,
            nothing: false,
        })
    }

    /// Reads a `metav1.LabelSelector`. Absent (null) selects nothing, empty selects everything.
    ///
    /// # Errors
    /// When an expression is malformed.
    pub fn from_object(object: &Value) -> Result<Self, SelectorError> {
        if object.is_null() {
            return Ok(Self {
                requirements: Vec::new(),
                nothing: true,
            });
        }
        let mut requirements = Vec::new();
        for (key, value) in object["matchLabels"].as_object().into_iter().flatten() {
            let value = value.as_str().unwrap_or_default().to_owned();
            check_key(key)?;
            requirements.push((key.clone(), Rule::In(vec![value])));
        }
        for expression in object["matchExpressions"].as_array().into_iter().flatten() {
            let key = expression["key"].as_str().unwrap_or_default();
            check_key(key)?;
            let values: Vec<String> = expression["values"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|value| value.as_str().map(str::to_owned))
                .collect();
            let operator = expression["operator"].as_str().unwrap_or_default();
            let rule = match operator {
                "In" | "NotIn" if values.is_empty() => {
                    return Err(SelectorError(
                        "for 'in', 'notin' operators, values set can't be empty".to_owned(),
                    ));
                }
                "In" => Rule::In(values),
                "NotIn" => Rule::NotIn(values),
                "Exists" => Rule::Exists,
                "DoesNotExist" => Rule::DoesNotExist,
                other => {
                    return Err(SelectorError(format!(
                        "{other:?} is not a valid label selector operator"
                    )));
                }
            };
            requirements.push((key.to_owned(), rule));
        }
        Ok(Self {
            requirements,
            nothing: false,
        })
    }

    /// Whether everything is selected.
    pub fn is_everything(&self) -> bool {
        !self.nothing && self.requirements.is_empty()
    }

    /// Whether labels are selected, given a way to look one up.
    pub fn matches_with<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        !self.nothing
            && self.requirements.iter().all(|(key, rule)| {
                let value = label(key);
                match rule {
                    Rule::In(values) => value.is_some_and(|v| values.iter().any(|x| x == v)),
                    Rule::NotIn(values) => !value.is_some_and(|v| values.iter().any(|x| x == v)),
                    Rule::Exists => value.is_some(),
                    Rule::DoesNotExist => value.is_none(),
                    Rule::Greater(than) => number(value).is_some_and(|n| n > *than),
                    Rule::Less(than) => number(value).is_some_and(|n| n < *than),
                }
            })
    }

    /// Whether a stored object is selected.
    pub fn matches(&self, stored: &Stored) -> bool {
        self.matches_with(|key| stored.label(key))
    }

    /// Whether labels given as a JSON object (or null) are selected.
    pub fn matches_value(&self, labels: &Value) -> bool {
        self.matches_with(|key| labels.get(key).and_then(Value::as_str))
    }
}

fn number(value: Option<&str>) -> Option<i64> {
    value?.parse().ok()
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sorted: Vec<_> = self.requirements.iter().collect();
        sorted.sort_by(|a, b| a.0.cmp(&b.0));
        for (index, (key, rule)) in sorted.into_iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            match rule {
                Rule::In(values) if values.len() == 1 => write!(f, "{key}={}", values[0])?,
                Rule::NotIn(values) if values.len() == 1 => write!(f, "{key}!={}", values[0])?,
                Rule::In(values) => write!(f, "{key} in ({})", values.join(","))?,
                Rule::NotIn(values) => write!(f, "{key} notin ({})", values.join(","))?,
                Rule::Exists => f.write_str(key)?,
                Rule::DoesNotExist => write!(f, "!{key}")?,
                Rule::Greater(than) => write!(f, "{key}>{than}")?,
                Rule::Less(than) => write!(f, "{key}<{than}")?,
            }
        }
        Ok(())
    }
}

fn split_top_level(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0_u32, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn requirement(part: &str) -> Result<(String, Rule), SelectorError> {
    let malformed = || {
        SelectorError(format!(
            "unable to parse requirement: found '{part}', expected: !, identifier, or one of =, ==, !=, in, notin, >, <"
        ))
    };
    if let Some(key) = part.strip_prefix('!') {
        let key = key.trim();
        check_key(key)?;
        return Ok((key.to_owned(), Rule::DoesNotExist));
    }
    if let Some(open) = part.find('(') {
        let inner = part[open + 1..].strip_suffix(')').ok_or_else(malformed)?;
        let mut words = part[..open].split_whitespace();
        let (Some(key), Some(operator), None) = (words.next(), words.next(), words.next()) else {
            return Err(malformed());
        };
        check_key(key)?;
        let values: Vec<String> = inner.split(',').map(|v| v.trim().to_owned()).collect();
        for value in &values {
            check_value(value)?;
        }
        let rule = match operator {
            "in" => Rule::In(values),
            "notin" => Rule::NotIn(values),
            _ => return Err(malformed()),
        };
        return Ok((key.to_owned(), rule));
    }
    for operator in ["!=", "==", "=", ">", "<"] {
        if let Some((key, value)) = part.split_once(operator) {
            let (key, value) = (key.trim(), value.trim());
            check_key(key)?;
            let bound = || {
                value.parse::<i64>().map_err(|_| {
                    SelectorError(format!(
                        "values[0][{key}]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer"
                    ))
                })
            };
            let rule = match operator {
                ">" => Rule::Greater(bound()?),
                "<" => Rule::Less(bound()?),
                "!=" => {
                    check_value(value)?;
                    Rule::NotIn(vec![value.to_owned()])
                }
                _ => {
                    check_value(value)?;
                    Rule::In(vec![value.to_owned()])
                }
            };
            return Ok((key.to_owned(), rule));
        }
    }
    check_key(part)?;
    Ok((part.to_owned(), Rule::Exists))
}

fn check_key(key: &str) -> Result<(), SelectorError> {
    match names::qualified_name(key).into_iter().next() {
        None => Ok(()),
        Some(why) => Err(SelectorError(format!("key: Invalid value: {key:?}: {why}"))),
    }
}

fn check_value(value: &str) -> Result<(), SelectorError> {
    match names::label_value(value).into_iter().next() {
        None => Ok(()),
        Some(why) => Err(SelectorError(format!(
            "values[0]: Invalid value: {value:?}: {why}"
        ))),
    }
}

/// Requirements on single fields, all of which must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    requirements: Vec<(String, bool, String)>,
}

impl FieldSelector {
    /// Reads `a.b=c,d!=e`.
    ///
    /// # Errors
    /// When it is malformed.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut requirements = Vec::new();
        for part in text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            let found = [("!=", false), ("==", true), ("=", true)]
                .into_iter()
                .find_map(|(operator, equal)| {
                    part.split_once(operator)
                        .map(|(field, value)| (field, equal, value))
                });
            let Some((field, equal, value)) = found else {
                return Err(SelectorError(format!(
                    "invalid selector: '{part}'; can't understand '{part}'"
                )));
            };
            requirements.push((field.trim().to_owned(), equal, value.trim().to_owned()));
        }
        Ok(Self { requirements })
    }

    /// The fields that are asked about.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.requirements.iter().map(|(field, _, _)| field.as_str())
    }

    /// Whether everything is selected.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The value that `field` must be equal to, if it must be.
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.requirements
            .iter()
            .find(|(name, equal, _)| name == field && *equal)
            .map(|(_, _, value)| value.as_str())
    }

    /// Whether a stored object is selected; a field that it does not have counts as empty.
    pub fn matches(&self, stored: &Stored) -> bool {
        self.requirements.iter().all(|(field, equal, value)| {
            (stored.field(field).unwrap_or_default() == value) == *equal
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn selects(selector: &str, labels: &Value) -> bool {
        LabelSelector::parse(selector)
            .unwrap()
            .matches_value(labels)
    }

    #[test]
    fn labels_are_selected_by_every_operator() {
        let labels = json!({"app": "web", "tier": "front", "n": "5"});
        for yes in [
            "",
            "app",
            "app=web",
            "app==web",
            "app!=db",
            "x!=y",
            "!x",
            "app in (web, db)",
            "x notin (a)",
            "n>4",
            "n<6",
            "app=web,tier in (front,back),!gone",
        ] {
            assert!(selects(yes, &labels), "{yes}");
        }
        for no in ["x", "app=db", "!app", "app notin (web)", "n>5", "app=web,x"] {
            assert!(!selects(no, &labels), "{no}");
        }
    }

    #[test]
    fn malformed_selectors_are_refused() {
        for bad in [
            "a b",
            "app=we b",
            "=x",
            "app in web",
            "app in (web",
            "-a=b",
            "n>x",
        ] {
            assert!(LabelSelector::parse(bad).is_err(), "{bad}");
        }
        assert!(FieldSelector::parse("spec.nodeName").is_err());
    }

    #[test]
    fn an_absent_selector_selects_nothing_and_an_empty_one_everything() {
        assert!(
            !LabelSelector::from_object(&Value::Null)
                .unwrap()
                .matches_value(&json!({}))
        );
        assert!(
            LabelSelector::from_object(&json!({}))
                .unwrap()
                .matches_value(&json!({"a": "b"}))
        );
        let unknown = json!({"matchExpressions": [{"key": "a", "operator": "Near"}]});
        assert!(LabelSelector::from_object(&unknown).is_err());
    }
}
