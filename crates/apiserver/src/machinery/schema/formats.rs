//! String and number formats that are checked; unknown ones are not, as in Kubernetes.

use std::net::{Ipv4Addr, Ipv6Addr};

use base64::Engine;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    DateTime,
    Date,
    Duration,
    Int32,
    Int64,
    Ipv4,
    Ipv6,
    Cidr,
    Uri,
    Uuid,
    Byte,
    Email,
    Hostname,
}

impl Format {
    pub(super) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "date-time" => Self::DateTime,
            "date" => Self::Date,
            "duration" => Self::Duration,
            "int32" => Self::Int32,
            "int64" => Self::Int64,
            "ipv4" => Self::Ipv4,
            "ipv6" => Self::Ipv6,
            "cidr" => Self::Cidr,
            "uri" => Self::Uri,
            "uuid" => Self::Uuid,
            "byte" => Self::Byte,
            "email" => Self::Email,
            "hostname" => Self::Hostname,
            _ => return None,
        })
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::DateTime => "date-time",
            Self::Date => "date",
            Self::Duration => "duration",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
            Self::Cidr => "cidr",
            Self::Uri => "uri",
            Self::Uuid => "uuid",
            Self::Byte => "byte",
            Self::Email => "email",
            Self::Hostname => "hostname",
        }
    }

    pub(super) fn accepts(self, text: &str) -> bool {
        match self {
            Self::DateTime => text.parse::<jiff::Timestamp>().is_ok(),
            Self::Date => text.parse::<jiff::civil::Date>().is_ok(),
            Self::Duration => is_go_duration(text),
            Self::Int32 | Self::Int64 => true,
            Self::Ipv4 => text.parse::<Ipv4Addr>().is_ok(),
            Self::Ipv6 => text.parse::<Ipv6Addr>().is_ok(),
            Self::Cidr => is_cidr(text),
            Self::Uri => text
                .parse::<http::Uri>()
                .is_ok_and(|uri| uri.scheme().is_some() || text.starts_with('/')),
            Self::Uuid => uuid::Uuid::parse_str(text).is_ok(),
            Self::Byte => base64::engine::general_purpose::STANDARD
                .decode(text)
                .is_ok(),
            Self::Email => text.split_once('@').is_some_and(|(local, domain)| {
                !local.is_empty() && !domain.is_empty() && !domain.contains('@')
            }),
            Self::Hostname => {
                crate::machinery::names::dns1123_subdomain(&text.to_lowercase()).is_empty()
            }
        }
    }
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else {
        return false;
    };
    let Ok(bits) = bits.parse::<u8>() else {
        return false;
    };
    address.parse::<Ipv4Addr>().is_ok() && bits <= 32
        || address.parse::<Ipv6Addr>().is_ok() && bits <= 128
}

fn is_go_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let end = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        if number.parse::<f64>().is_err() {
            return false;
        }
        let unit = ["ns", "us", "µs", "ms", "s", "m", "h"]
            .into_iter()
            .filter(|unit| after.starts_with(unit))
            .max_by_key(|unit| unit.len());
        match unit {
            Some(unit) => rest = &after[unit.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_accept_what_kubernetes_accepts() {
        for (format, good, bad) in [
            (Format::DateTime, "2026-12-01T10:00:00Z", "2026-12-01"),
            (Format::Duration, "1h30m", "1x"),
            (Format::Duration, "500ms", "5"),
            (Format::Cidr, "10.0.0.0/8", "10.0.0.0"),
            (Format::Cidr, "fd00::/64", "10.0.0.0/33"),
            (Format::Ipv4, "1.2.3.4", "1.2.3"),
            (Format::Uuid, "8e9d1c1e-6a3e-4f0e-9d2c-0a1b2c3d4e5f", "x"),
            (Format::Byte, "aGk=", "a"),
        ] {
            assert!(format.accepts(good), "{format:?} {good}");
            assert!(!format.accepts(bad), "{format:?} {bad}");
        }
    }
}
