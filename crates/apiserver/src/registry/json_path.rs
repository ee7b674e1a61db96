//! The JSONPath subset that printer columns use: fields, indexes, wildcards and comparisons with a literal.

use serde_json::Value;

/// A parsed path.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath(Vec<Step>);

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    Slice(Option<i64>, Option<i64>),
    Every,
    Where {
        path: JsonPath,
        test: Option<(Comparison, Value)>,
    },
    Descend(String),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl JsonPath {
    /// Parses a path such as `.status.conditions[?(@.type=="Ready")].status`, with or without braces.
    ///
    /// # Errors
    /// A sentence about the first thing that is not understood.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let text = text
            .strip_prefix('{')
            .and_then(|inner| inner.strip_suffix('}'))
            .unwrap_or(text)
            .trim();
        let mut parser = Parser { rest: text };
        if let Some(rest) = parser.rest.strip_prefix(['$', '@']) {
            parser.rest = rest;
        }
        let steps = parser.steps(|_| false)?;
        Ok(Self(steps))
    }

    /// All values that the path leads to, in document order.
    pub fn all<'a>(&self, root: &'a Value) -> Vec<&'a Value> {
        let mut at = vec![root];
        for step in &self.0 {
            let mut next = Vec::new();
            for value in at {
                step.follow(value, &mut next);
            }
            at = next;
        }
        at
    }

    /// The first value that the path leads to.
    pub fn first<'a>(&self, root: &'a Value) -> Option<&'a Value> {
        self.all(root).into_iter().next()
    }
}

impl Step {
    fn follow<'a>(&self, value: &'a Value, found: &mut Vec<&'a Value>) {
        match self {
            Self::Field(name) => found.extend(value.get(name)),
            Self::Index(index) => found.extend(value.as_array().and_then(|list| {
                let at = position(*index, list.len());
                usize::try_from(at).ok().and_then(|at| list.get(at))
            })),
            Self::Slice(from, to) => {
                if let Some(list) = value.as_array() {
                    let length = i64::try_from(list.len()).unwrap_or(i64::MAX);
                    let from = position(from.unwrap_or(0), list.len()).clamp(0, length);
                    let to = to.map_or(length, |to| position(to, list.len()).clamp(0, length));
                    let skip = usize::try_from(from).unwrap_or(0);
                    let take = usize::try_from(to - from).unwrap_or(0);
                    found.extend(list.iter().skip(skip).take(take));
                }
            }
            Self::Every => match value {
                Value::Array(list) => found.extend(list),
                Value::Object(map) => found.extend(map.values()),
                _ => {}
            },
            Self::Where { path, test } => {
                let items: Vec<&Value> = match value {
                    Value::Array(list) => list.iter().collect(),
                    Value::Object(map) => map.values().collect(),
                    _ => Vec::new(),
                };
                found.extend(items.into_iter().filter(|item| {
                    let left = path.first(item);
                    match (left, test) {
                        (None, _) => false,
                        (Some(_), None) => true,
                        (Some(left), Some((comparison, right))) => comparison.holds(left, right),
                    }
                }));
            }
            Self::Descend(name) => descend(value, name, found),
        }
    }
}

fn position(index: i64, length: usize) -> i64 {
    if index < 0 {
        i64::try_from(length).unwrap_or(i64::MAX) + index
    } else {
        index
    }
}

fn descend<'a>(value: &'a Value, name: &str, found: &mut Vec<&'a Value>) {
    match value {
        Value::Object(map) => {
            found.extend(map.get(name));
            for child in map.values() {
                descend(child, name, found);
            }
        }
        Value::Array(list) => {
            for child in list {
                descend(child, name, found);
            }
        }
        _ => {}
    }
}

impl Comparison {
    fn holds(self, left: &Value, right: &Value) -> bool {
        use std::cmp::Ordering;
        let order = match (left, right) {
            (Value::Number(a), Value::Number(b)) => a
                .as_f64()
                .zip(b.as_f64())
                .and_then(|(a, b)| a.partial_cmp(&b)),
            (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
            (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
            _ => None,
        };
        match self {
            Self::Equal => order == Some(Ordering::Equal),
            Self::NotEqual => order != Some(Ordering::Equal),
            Self::Less => order == Some(Ordering::Less),
            Self::LessOrEqual => order.is_some_and(Ordering::is_le),
            Self::Greater => order == Some(Ordering::Greater),
            Self::GreaterOrEqual => order.is_some_and(Ordering::is_ge),
        }
    }
}

struct Parser<'a> {
    rest: &'a str,
}

impl Parser<'_> {
    fn steps(&mut self, end: impl Fn(&str) -> bool) -> Result<Vec<Step>, String> {
        let mut steps = Vec::new();
        while !self.rest.is_empty() && !end(self.rest) {
            if let Some(rest) = self.rest.strip_prefix("..") {
                self.rest = rest;
                steps.push(Step::Descend(self.name()?));
            } else if let Some(rest) = self.rest.strip_prefix('.') {
                self.rest = rest;
                if let Some(rest) = self.rest.strip_prefix('*') {
                    self.rest = rest;
                    steps.push(Step::Every);
                } else if !self.rest.starts_with('[') && !self.rest.is_empty() {
                    steps.push(Step::Field(self.name()?));
                }
            } else if self.rest.starts_with('[') {
                steps.push(self.bracket()?);
            } else if steps.is_empty() {
                steps.push(Step::Field(self.name()?));
            } else {
                return Err(format!("unexpected text {:?}", self.rest));
            }
        }
        Ok(steps)
    }

    fn name(&mut self) -> Result<String, String> {
        let mut name = String::new();
        let mut chars = self.rest.char_indices();
        let mut used = self.rest.len();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => {
                    if let Some((_, escaped)) = chars.next() {
                        name.push(escaped);
                    }
                }
                '.' | '[' | ']' | ')' | '=' | '!' | '<' | '>' | ' ' => {
                    used = at;
                    break;
                }
                other => name.push(other),
            }
        }
        self.rest = &self.rest[used..];
        if name.is_empty() {
            return Err(format!("a field name is missing before {:?}", self.rest));
        }
        Ok(name)
    }

    fn bracket(&mut self) -> Result<Step, String> {
        if let Some(rest) = self.rest.strip_prefix("[?(") {
            self.rest = rest.trim_start();
            self.rest = self.rest.strip_prefix('@').unwrap_or(self.rest);
            let path =
                JsonPath(self.steps(|rest| rest.starts_with(['=', '!', '<', '>', ' ', ')']))?);
            self.rest = self.rest.trim_start();
            let mut test = None;
            if !self.rest.starts_with(')') {
                let comparison = self.comparison()?;
                let literal = self.literal()?;
                test = Some((comparison, literal));
            }
            self.rest = self
                .rest
                .trim_start()
                .strip_prefix(")]")
                .ok_or("unterminated filter")?;
            return Ok(Step::Where { path, test });
        }
        let inner = &self.rest[1..];
        if let Some(quote) = inner.chars().next().filter(|c| matches!(c, '\'' | '"')) {
            let close = inner[1..].find(quote).ok_or("unterminated string")? + 1;
            let name = inner[1..close].to_owned();
            self.rest = inner[close + 1..]
                .trim_start()
                .strip_prefix(']')
                .ok_or("unterminated bracket")?;
            return Ok(Step::Field(name));
        }
        let close = inner.find(']').ok_or("unterminated bracket")?;
        let body = inner[..close].trim();
        self.rest = &inner[close + 1..];
        let number = |text: &str| {
            text.trim()
                .parse::<i64>()
                .map_err(|_| format!("invalid array index {text}"))
        };
        if body == "*" {
            Ok(Step::Every)
        } else if let Some((from, to)) = body.split_once(':') {
            let part = |text: &str| {
                if text.trim().is_empty() {
                    Ok(None)
                } else {
                    number(text).map(Some)
                }
            };
            Ok(Step::Slice(part(from)?, part(to)?))
        } else {
            Ok(Step::Index(number(body)?))
        }
    }

    fn comparison(&mut self) -> Result<Comparison, String> {
        for (text, comparison) in [
            ("==", Comparison::Equal),
            ("!=", Comparison::NotEqual),
            ("<=", Comparison::LessOrEqual),
            (">=", Comparison::GreaterOrEqual),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
            ("=", Comparison::Equal),
        ] {
            if let Some(rest) = self.rest.strip_prefix(text) {
                self.rest = rest.trim_start();
                return Ok(comparison);
            }
        }
        Err(format!("a comparison is missing before {:?}", self.rest))
    }

    fn literal(&mut self) -> Result<Value, String> {
        if let Some(quote) = self.rest.chars().next().filter(|c| matches!(c, '\'' | '"')) {
            let close = self.rest[1..].find(quote).ok_or("unterminated string")? + 1;
            let text = self.rest[1..close].to_owned();
            self.rest = &self.rest[close + 1..];
            return Ok(Value::String(text));
        }
        let end = self.rest.find([')', ' ']).unwrap_or(self.rest.len());
        let text = &self.rest[..end];
        self.rest = &self.rest[end..];
        serde_json::from_str(text).map_err(|_| format!("{text:?} is not a literal"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_of_printer_columns_find_their_values() {
        let object = json!({
            "metadata": {"labels": {"cluster.x-k8s.io/name": "one"}},
            "spec": {"replicas": 3, "list": ["a", "b", "c"]},
            "status": {"conditions": [
                {"type": "Ready", "status": "True"},
                {"type": "Paused", "status": "False", "count": 4},
            ]},
        });
        for (path, found) in [
            (".spec.replicas", json!([3])),
            ("{.spec.replicas}", json!([3])),
            (r".metadata.labels.cluster\.x-k8s\.io/name", json!(["one"])),
            (".metadata.labels['cluster.x-k8s.io/name']", json!(["one"])),
            (
                r#".status.conditions[?(@.type=="Ready")].status"#,
                json!(["True"]),
            ),
            (
                ".status.conditions[?(@.type == 'Paused')].status",
                json!(["False"]),
            ),
            (".status.conditions[?(@.count>3)].type", json!(["Paused"])),
            (".status.conditions[*].type", json!(["Ready", "Paused"])),
            (".spec.list[-1]", json!(["c"])),
            (".spec.list[0:2]", json!(["a", "b"])),
            ("..status", json!([object["status"], "True", "False"])),
            (".spec.absent.deeper", json!([])),
        ] {
            let parsed = JsonPath::parse(path).unwrap();
            assert_eq!(json!(parsed.all(&object)), found, "{path}");
        }
    }

    #[test]
    fn broken_paths_are_refused() {
        for path in [".spec[", ".a[?(@.b==]", ".a['b", ".a[x]"] {
            assert!(JsonPath::parse(path).is_err(), "{path}");
        }
    }
}
