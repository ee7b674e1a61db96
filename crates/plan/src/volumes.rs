//! Which attached volumes the end of an instance waits for.
//!
//! A volume that is cut off hard cannot be attached elsewhere for minutes, so the end waits for the detach; but only for
//! volumes that this drain can free. Source: Cluster API, which also waits for what can never come loose.

use std::collections::BTreeSet;
use std::fmt;

/// A PersistentVolumeClaim by namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Claim {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// A volume that the Node or an attachment of it says is attached.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attached {
    /// As an operator knows it: the PersistentVolume's name, else what the Node or the attachment calls it.
    pub name: String,
    /// The PersistentVolume, if there is one.
    pub volume: Option<Volume>,
}

/// What is known of a PersistentVolume.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Volume {
    /// The claim that it is bound to.
    pub claim: Option<Claim>,
    /// Its claim is gone.
    pub released: bool,
}

/// Claims of the Node's Pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// Of Pods that the drain leaves alone.
    pub of_skipped: BTreeSet<Claim>,
    /// Of all others.
    pub of_others: BTreeSet<Claim>,
}

/// Why an attached volume is not waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ignored {
    /// No PersistentVolume is known for it, so nobody would detach it for another Pod.
    NoVolume,
    /// Only Pods that the drain leaves alone use it, so it stays until the instance ends.
    OnlySkippedPods,
    /// Its claim is gone, so no Pod waits for it.
    Released,
}

impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoVolume => "no PersistentVolume is known for it",
            Self::OnlySkippedPods => "only Pods that are not drained use it",
            Self::Released => "its claim is gone",
        })
    }
}

/// The attached volumes, in two parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Detach {
    /// Names of those that are waited for.
    pub waited_for: Vec<String>,
    /// Those that are not, and why.
    pub ignored: Vec<(String, Ignored)>,
}

/// Which of the attached volumes are waited for.
pub fn detach(attached: &BTreeSet<Attached>, claims: &Claims) -> Detach {
    let mut parts = Detach::default();
    for volume in attached {
        match ignored(volume, claims) {
            Some(why) => parts.ignored.push((volume.name.clone(), why)),
            None => parts.waited_for.push(volume.name.clone()),
        }
    }
    parts
}

fn ignored(attached: &Attached, claims: &Claims) -> Option<Ignored> {
    let Some(volume) = &attached.volume else {
        return Some(Ignored::NoVolume);
    };
    let Some(claim) = volume.claim.as_ref().filter(|_| !volume.released) else {
        return Some(Ignored::Released);
    };
    (claims.of_skipped.contains(claim) && !claims.of_others.contains(claim))
        .then_some(Ignored::OnlySkippedPods)
}

/// How many volumes a message names. Source: Cluster API.
const NAMES: usize = 5;

/// The message of a wait for volumes.
pub fn message(detach: &Detach) -> String {
    let mut text = format!(
        "Waiting for volumes to be detached from the Node: {}",
        few(&detach.waited_for)
    );
    for (name, why) in detach.ignored.iter().take(NAMES) {
        text.push_str(&format!("\n* {name} is not waited for: {why}"));
    }
    if let Some(more) = detach.ignored.len().checked_sub(NAMES).filter(|m| *m > 0) {
        text.push_str(&format!("\n* … and {more} more that are not waited for"));
    }
    text
}

fn few(names: &[String]) -> String {
    let shown = names[..names.len().min(NAMES)].join(", ");
    match names.len().checked_sub(NAMES) {
        Some(more) if more > 0 => format!("{shown}, ... ({more} more)"),
        _ => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(name: &str) -> Claim {
        Claim {
            namespace: "default".to_owned(),
            name: name.to_owned(),
        }
    }

    fn bound(name: &str) -> Attached {
        Attached {
            name: name.to_owned(),
            volume: Some(Volume {
                claim: Some(claim(name)),
                released: false,
            }),
        }
    }

    #[test]
    fn only_volumes_that_the_drain_can_free_are_waited_for() {
        let attached = BTreeSet::from([
            bound("database"),
            bound("cache"),
            bound("both"),
            Attached {
                name: "kubernetes.io/csi/x^1".to_owned(),
                volume: None,
            },
            Attached {
                name: "old".to_owned(),
                volume: Some(Volume {
                    claim: Some(claim("old")),
                    released: true,
                }),
            },
        ]);
        let claims = Claims {
            of_skipped: BTreeSet::from([claim("cache"), claim("both")]),
            of_others: BTreeSet::from([claim("both")]),
        };
        let parts = detach(&attached, &claims);
        assert_eq!(parts.waited_for, ["both", "database"]);
        insta::assert_snapshot!(message(&parts), @r"
        Waiting for volumes to be detached from the Node: both, database
        * cache is not waited for: only Pods that are not drained use it
        * kubernetes.io/csi/x^1 is not waited for: no PersistentVolume is known for it
        * old is not waited for: its claim is gone
        ");
        assert_eq!(parts.waited_for.len() + parts.ignored.len(), attached.len());
    }
}
