//! In which zone the next instance is launched.

use std::collections::BTreeMap;

/// The zone with the fewest instances that has room, the first of equals; `None` when none has.
pub(super) fn next_zone<'a>(
    zones: &'a [String],
    counts: &BTreeMap<&str, usize>,
    capacity: &BTreeMap<String, u32>,
) -> Option<&'a str> {
    zones
        .iter()
        .map(String::as_str)
        .filter(|zone| {
            let room = capacity
                .get(*zone)
                .and_then(|limit| usize::try_from(*limit).ok())
                .unwrap_or(usize::MAX);
            counts.get(zone).copied().unwrap_or(0) < room
        })
        .min_by_key(|zone| counts.get(zone).copied().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_zone_is_filled_unless_it_has_no_room() {
        let zones = ["a", "b", "c"].map(String::from);
        let counts = BTreeMap::from([("a", 2), ("b", 1), ("c", 2)]);
        assert_eq!(next_zone(&zones, &counts, &BTreeMap::new()), Some("b"));
        let full = BTreeMap::from([("b".to_owned(), 1)]);
        assert_eq!(next_zone(&zones, &counts, &full), Some("a"));
        let none = BTreeMap::from([
            ("a".to_owned(), 0),
            ("b".to_owned(), 0),
            ("c".to_owned(), 0),
        ]);
        assert_eq!(next_zone(&zones, &counts, &none), None);
    }
}
