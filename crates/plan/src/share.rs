//! A number of machines, given as such or as a percentage of a pool's size.

use std::fmt;

/// A number or a percentage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// So many.
    Number(u32),
    /// So many of a hundred.
    Percent(u32),
}

/// A text that is no share.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is neither a number from 0 on nor a percentage such as 10%")]
pub struct InvalidShare {
    found: String,
}

impl Share {
    /// From a text: `3` or `10%`.
    ///
    /// # Errors
    /// When it is neither.
    pub fn parse(text: &str) -> Result<Self, InvalidShare> {
        let invalid = || InvalidShare {
            found: text.to_owned(),
        };
        match text.strip_suffix('%') {
            Some(percent) => percent.parse().map(Self::Percent).map_err(|_| invalid()),
            None => text.parse().map(Self::Number).map_err(|_| invalid()),
        }
    }

    /// From a number.
    ///
    /// # Errors
    /// When it is below zero.
    pub fn number(number: i32) -> Result<Self, InvalidShare> {
        let found = || InvalidShare {
            found: number.to_string(),
        };
        u32::try_from(number).map(Self::Number).map_err(|_| found())
    }

    /// How many of a total that is, a part of one counting as none.
    pub fn rounded_down(self, total: u32) -> u32 {
        match self {
            Self::Number(number) => number,
            Self::Percent(percent) => narrow(u64::from(percent) * u64::from(total) / 100),
        }
    }

    /// How many of a total that is, a part of one counting as one.
    pub fn rounded_up(self, total: u32) -> u32 {
        match self {
            Self::Number(number) => number,
            Self::Percent(percent) => narrow((u64::from(percent) * u64::from(total)).div_ceil(100)),
        }
    }

    /// As [`Share::rounded_down`], but at least one of something unless the share is nothing: a tenth of a pool of three is
    /// one machine, or nothing would ever be done for a small pool.
    pub fn at_least_one(self, total: u32) -> u32 {
        match self {
            Self::Percent(percent) if percent > 0 && total > 0 => self.rounded_down(total).max(1),
            _ => self.rounded_down(total),
        }
    }
}

fn narrow(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_rounded_and_numbers_are_not() {
        let share = Share::parse("40%").unwrap();
        assert_eq!((share.rounded_down(3), share.rounded_up(3)), (1, 2));
        assert_eq!((share.rounded_down(2), share.at_least_one(2)), (0, 1));
        assert_eq!(share.at_least_one(0), 0);
        assert_eq!(Share::Percent(100).rounded_down(u32::MAX), u32::MAX);
        assert_eq!(Share::parse("7"), Ok(Share::Number(7)));
        assert_eq!(Share::Number(7).rounded_down(3), 7);
        assert_eq!(Share::parse("0%").unwrap().at_least_one(10), 0);
        for text in ["", "%", "-1", "-5%", "1.5", "ten", "10 %"] {
            assert!(Share::parse(text).is_err(), "{text}");
        }
        assert!(Share::number(-1).is_err());
    }

    #[test]
    fn a_share_is_shown_as_it_is_written() {
        for text in ["3", "25%"] {
            assert_eq!(Share::parse(text).unwrap().to_string(), text);
        }
    }
}
