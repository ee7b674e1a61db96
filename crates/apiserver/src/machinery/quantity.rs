//! Amounts of resources as Kubernetes writes them: `500m`, `1.5`, `2Gi`, `1e3`; exact.

use std::cmp::Ordering;
use std::str::FromStr;

/// An amount, in billionths; exact over the range that Kubernetes accepts for real resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity(i128);

/// A text that is no amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)]
pub struct QuantityError;

const NANO: i128 = 1_000_000_000;

impl Quantity {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// A whole number.
    pub fn whole(number: i64) -> Self {
        Self(i128::from(number) * NANO)
    }

    /// Thousandths, rounded up.
    pub fn milli(self) -> i128 {
        let (quotient, rest) = (self.0 / 1_000_000, self.0 % 1_000_000);
        quotient + i128::from(rest > 0)
    }

    /// The sum.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Whether it is below zero.
    pub fn is_negative(self) -> bool {
        self.0.cmp(&0) == Ordering::Less
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let (negative, digits) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let end = digits
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(digits.len());
        let (number, suffix) = digits.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
            return Err(QuantityError);
        }
        let (multiplier, divisor) = scale(suffix)?;
        let mut mantissa: i128 = 0;
        // More than 18 digits after the point are below a billionth of anything that is asked for.
        for digit in whole.bytes().chain(fraction.bytes().take(18)) {
            mantissa = mantissa
                .checked_mul(10)
                .and_then(|m| m.checked_add(i128::from(digit - b'0')))
                .ok_or(QuantityError)?;
        }
        let places = u32::try_from(fraction.len().min(18)).map_err(|_| QuantityError)?;
        let denominator = 10_i128
            .pow(places)
            .checked_mul(divisor)
            .ok_or(QuantityError)?;
        let scaled = mantissa
            .checked_mul(multiplier)
            .and_then(|m| m.checked_mul(NANO))
            .ok_or(QuantityError)?;
        // Kubernetes rounds away from zero what is finer than its scale.
        let mut value = scaled / denominator;
        if scaled % denominator != 0 {
            value += 1;
        }
        Ok(Self(if negative { -value } else { value }))
    }
}

fn scale(suffix: &str) -> Result<(i128, i128), QuantityError> {
    let decimal = |exponent: u32| 10_i128.pow(exponent);
    Ok(match suffix {
        "" => (1, 1),
        "n" => (1, decimal(9)),
        "u" => (1, decimal(6)),
        "m" => (1, decimal(3)),
        "k" => (decimal(3), 1),
        "M" => (decimal(6), 1),
        "G" => (decimal(9), 1),
        "T" => (decimal(12), 1),
        "P" => (decimal(15), 1),
        "E" => (decimal(18), 1),
        "Ki" => (1 << 10, 1),
        "Mi" => (1 << 20, 1),
        "Gi" => (1 << 30, 1),
        "Ti" => (1 << 40, 1),
        "Pi" => (1 << 50, 1),
        "Ei" => (1 << 60, 1),
        _ => {
            let exponent = suffix
                .strip_prefix(['e', 'E'])
                .and_then(|number| number.parse::<i32>().ok())
                .filter(|exponent| (-18..=18).contains(exponent))
                .ok_or(QuantityError)?;
            let power = decimal(exponent.unsigned_abs());
            if exponent < 0 { (1, power) } else { (power, 1) }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_in_different_notations_are_compared_exactly() {
        let q = |text: &str| text.parse::<Quantity>().unwrap();
        for (a, b) in [
            ("1", "1000m"),
            ("1Ki", "1024"),
            ("1.5", "1500m"),
            ("1e3", "1k"),
            ("0.5Gi", "512Mi"),
            ("100E-2", "1"),
        ] {
            assert_eq!(q(a), q(b), "{a} {b}");
        }
        assert!(q("1Gi") > q("1G"));
        assert!(q("-1").is_negative());
        assert_eq!(q("1u").milli(), 1);
        for bad in ["", "m", "1x", "1.2.3", "abc", "1 Gi", "--1"] {
            assert!(bad.parse::<Quantity>().is_err(), "{bad}");
        }
    }
}
