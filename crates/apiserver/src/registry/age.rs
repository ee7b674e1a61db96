//! How long ago something was, in the few characters that tables have.

use jiff::Timestamp;
use serde_json::Value;

/// The time between `then` and `now` as `kubectl get` shows ages: two units while that is telling, then one.
pub fn age_of(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.as_second().saturating_sub(then.as_second());
    human(seconds)
}

/// A number of seconds in the same form.
pub fn human(seconds: i64) -> String {
    let two = |major: i64, major_unit: &str, minor: i64, minor_unit: &str| {
        if minor == 0 {
            format!("{major}{major_unit}")
        } else {
            format!("{major}{major_unit}{minor}{minor_unit}")
        }
    };
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    match () {
        // Clocks of two machines may differ by a little.
        () if seconds < -1 => "<invalid>".to_owned(),
        () if seconds < 0 => "0s".to_owned(),
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => two(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if hours < 24 * 8 => two(hours / 24, "d", hours % 24, "h"),
        () if hours < 24 * 365 * 2 => format!("{}d", hours / 24),
        () if hours < 24 * 365 * 8 => two(hours / 24 / 365, "y", hours / 24 % 365, "d"),
        () => format!("{}y", hours / 24 / 365),
    }
}

/// The age of the timestamp at a JSON value, `<unknown>` when there is none.
pub fn age_cell(value: Option<&Value>, now: Timestamp) -> String {
    match value.and_then(Value::as_str).map(str::parse::<Timestamp>) {
        None => "<unknown>".to_owned(),
        Some(Err(_)) => "<invalid>".to_owned(),
        Some(Ok(then)) => age_of(then, now),
    }
}

#[cfg(test)]
mod tests {
    use super::human;

    #[test]
    fn ages_get_coarser_as_they_grow() {
        let minute = 60;
        let hour = 60 * minute;
        let day = 24 * hour;
        for (seconds, shown) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (9 * minute + 59, "9m59s"),
            (10 * minute + 1, "10m"),
            (179 * minute, "179m"),
            (3 * hour, "3h"),
            (7 * hour + 59 * minute, "7h59m"),
            (47 * hour, "47h"),
            (48 * hour, "2d"),
            (7 * day + hour, "7d1h"),
            (8 * day + hour, "8d"),
            (731 * day, "2y1d"),
            (9 * 365 * day, "9y"),
        ] {
            assert_eq!(human(seconds), shown, "{seconds} seconds");
        }
    }
}
