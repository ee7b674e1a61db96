//! What the going of Machines does to their pool's size, each once, whatever crashes in between.
//!
//! The size is one number, and the memory of what it already follows is kept beside it, in the same object: a write that
//! changes the one carries the other. So whoever comes back after a crash finds either both or neither, and a Machine whose
//! going is remembered is never counted again.

use std::collections::BTreeSet;

/// Whether a Machine that is deleted gets a successor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replacement {
    /// The pool keeps its size and gets a new machine.
    #[default]
    Replace,
    /// The size goes down by one.
    Shrink,
}

/// Machines whose going the size follows already, each by a short form of its UID.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted(BTreeSet<String>);

impl Counted {
    /// How much of a UID is kept: 64 bits, so that ten thousand of them fit into an annotation and none are confused.
    const DIGITS: usize = 16;

    /// From the text that [`Counted`] is shown as.
    pub fn parse(text: &str) -> Self {
        let marks = text.split(',').map(str::trim).filter(|m| !m.is_empty());
        Self(marks.map(str::to_owned).collect())
    }

    /// Whether the size follows the going of the Machine with that UID.
    pub fn has(&self, uid: &str) -> bool {
        self.0.contains(&Self::mark(uid))
    }

    /// Remembers a Machine; says whether that is news.
    pub fn add(&mut self, uid: &str) -> bool {
        self.0.insert(Self::mark(uid))
    }

    /// Forgets all Machines but these: those that are gone cannot be deleted again.
    pub fn keep_only<'a>(&mut self, uids: impl IntoIterator<Item = &'a str>) {
        let known: BTreeSet<String> = uids.into_iter().map(Self::mark).collect();
        self.0.retain(|mark| known.contains(mark));
    }

    /// How many are remembered.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether none is remembered.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn mark(uid: &str) -> String {
        uid.chars()
            .filter(|c| *c != '-')
            .take(Self::DIGITS)
            .collect()
    }
}

impl std::fmt::Display for Counted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let marks: Vec<&str> = self.0.iter().map(String::as_str).collect();
        f.write_str(&marks.join(","))
    }
}

/// A pool's size and what it follows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// How many machines are wanted.
    pub replicas: u32,
    /// Machines whose going is in that number already.
    pub counted: Counted,
    /// The smallest size that an autoscaler keeps the pool at.
    pub minimum: Option<u32>,
    /// Whether something outside owns the size.
    pub outside: bool,
}

/// What the deletion of one Machine does to the size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing: the Machine is replaced.
    Replaced,
    /// Nothing any more: the size follows it already.
    Counted,
    /// Nothing, although it was wished for: something outside owns the size, and Muster never works against it.
    Outside,
    /// Nothing, although it was wished for: the size is 0.
    Empty,
    /// The size goes down by one.
    Lowered {
        /// From this.
        from: u32,
        /// To this.
        to: u32,
        /// The autoscaler's minimum, when it is passed.
        below: Option<u32>,
    },
}

impl Size {
    /// Counts the deletion of a Machine in. Counting one twice does what counting it once does.
    pub fn count(&mut self, uid: &str, wish: Replacement) -> Outcome {
        if self.counted.has(uid) {
            return Outcome::Counted;
        }
        match wish {
            Replacement::Replace => Outcome::Replaced,
            Replacement::Shrink if self.outside => Outcome::Outside,
            Replacement::Shrink => {
                self.counted.add(uid);
                let from = self.replicas;
                let Some(to) = from.checked_sub(1) else {
                    return Outcome::Empty;
                };
                self.replicas = to;
                let below = self.minimum.filter(|minimum| to < *minimum);
                Outcome::Lowered { from, to, below }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(replicas: u32) -> Size {
        Size {
            replicas,
            ..Size::default()
        }
    }

    fn uid(number: u8) -> String {
        format!("{number:08x}-0000-4000-8000-000000000000")
    }

    #[test]
    fn a_deletion_that_shrinks_is_counted_once() {
        let mut size = of(5);
        assert_eq!(
            size.count(&uid(1), Replacement::Shrink),
            Outcome::Lowered {
                from: 5,
                to: 4,
                below: None
            }
        );
        assert_eq!(size.count(&uid(1), Replacement::Shrink), Outcome::Counted);
        assert_eq!(size.count(&uid(2), Replacement::Replace), Outcome::Replaced);
        assert_eq!(size.replicas, 4);
    }

    #[test]
    fn passing_the_autoscalers_minimum_is_said() {
        let mut size = Size {
            minimum: Some(3),
            ..of(4)
        };
        let lowered = |from, to, below| Outcome::Lowered { from, to, below };
        assert_eq!(
            size.count(&uid(1), Replacement::Shrink),
            lowered(4, 3, None)
        );
        assert_eq!(
            size.count(&uid(2), Replacement::Shrink),
            lowered(3, 2, Some(3))
        );
    }

    #[test]
    fn a_size_that_something_outside_owns_is_left_alone() {
        let mut size = Size {
            outside: true,
            ..of(4)
        };
        assert_eq!(size.count(&uid(1), Replacement::Shrink), Outcome::Outside);
        assert_eq!((size.replicas, size.counted.len()), (4, 0));
        assert_eq!(of(0).count(&uid(1), Replacement::Shrink), Outcome::Empty);
    }

    #[test]
    fn what_is_counted_survives_being_written_down_and_ten_thousand_fit() {
        let mut size = of(9);
        size.count(&uid(1), Replacement::Shrink);
        size.count(&uid(2), Replacement::Shrink);
        let text = size.counted.to_string();
        assert_eq!(Counted::parse(&text), size.counted);
        assert_eq!(Counted::parse(""), Counted::default());
        assert!(
            text.len() * 5_000 < 256 * 1024,
            "annotations have 256 KiB in all"
        );
        size.counted.keep_only([uid(2).as_str()]);
        assert!(!size.counted.has(&uid(1)) && size.counted.has(&uid(2)));
    }

    /// What happens to a pool; a crash loses what was decided but not written.
    #[derive(Clone, Debug)]
    enum Step {
        /// A pass on a Machine that is being deleted, which may crash before its write or after it.
        Pass {
            machine: u8,
            written: bool,
        },
        Scale(u32),
        /// Machines that are gone are forgotten.
        Forget,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (0..8_u8, any::<bool>()).prop_map(|(machine, written)| Step::Pass { machine, written }),
            1 => (20..40_u32).prop_map(Step::Scale),
            1 => Just(Step::Forget),
        ];
        prop::collection::vec(step, 0..60)
    }

    proptest! {
        #[test]
        fn however_often_passes_crash_each_machine_lowers_the_size_once(steps in steps()) {
            let mut written = of(30);
            let mut expected = 30;
            let mut shrunk = BTreeSet::new();
            for step in steps {
                match step {
                    Step::Pass { machine, written: reaches } => {
                        // A pass starts from what is written and nothing else.
                        let mut next = Size { counted: Counted::parse(&written.counted.to_string()), ..written.clone() };
                        next.count(&uid(machine), Replacement::Shrink);
                        if reaches {
                            written = next;
                            if shrunk.insert(machine) {
                                expected -= 1;
                            }
                        }
                    }
                    Step::Scale(to) => {
                        written.replicas = to;
                        expected = to;
                    }
                    // None of them is gone as long as passes on it may come.
                    Step::Forget => {
                        let all: Vec<String> = (0..8).map(uid).collect();
                        written.counted.keep_only(all.iter().map(String::as_str));
                    }
                }
                prop_assert_eq!(written.replicas, expected);
            }
        }
    }
}
