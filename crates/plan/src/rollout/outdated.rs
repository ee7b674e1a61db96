//! Whether a machine is what its pool wants, and if not, in what.

/// What a machine is made from, as far as its pool says it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// Kubernetes version; nothing is asked for where there is none.
    pub version: Option<String>,
    /// The bootstrap object or Secret that is referred to. What the Secret holds may be renewed at any time, so only the
    /// reference counts.
    pub bootstrap: Option<String>,
}

/// In what a machine is not what its pool wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outdated {
    /// Its version is another.
    Version {
        /// What it has.
        has: String,
        /// What the pool wants.
        wants: String,
    },
    /// It was bootstrapped with something else.
    Bootstrap {
        /// What it was bootstrapped with.
        has: String,
        /// What the pool wants.
        wants: String,
    },
    /// The provider says that its instance was not launched from the current template.
    Instance,
}

impl std::fmt::Display for Outdated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Version { has, wants } => write!(f, "Version {has}, {wants} required"),
            Self::Bootstrap { has, wants } => {
                write!(f, "Bootstrapped with {has}, {wants} required")
            }
            Self::Instance => f.write_str("Instance was launched from an older template"),
        }
    }
}

/// In what a machine is not what its pool wants. What is not known of it is nothing that it lacks.
pub fn outdated(wants: &Source, has: &Source, provider: Option<bool>) -> Vec<Outdated> {
    let mut list = Vec::new();
    if let (Some(wants), Some(has)) = (&wants.version, &has.version)
        && bare(wants) != bare(has)
    {
        list.push(Outdated::Version {
            has: has.clone(),
            wants: wants.clone(),
        });
    }
    if let (Some(wants), Some(has)) = (&wants.bootstrap, &has.bootstrap)
        && wants != has
    {
        list.push(Outdated::Bootstrap {
            has: has.clone(),
            wants: wants.clone(),
        });
    }
    if provider == Some(false) {
        list.push(Outdated::Instance);
    }
    list
}

/// The `v` in front of a version is a matter of taste.
fn bare(version: &str) -> &str {
    version.strip_prefix('v').unwrap_or(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(version: Option<&str>, bootstrap: Option<&str>) -> Source {
        Source {
            version: version.map(str::to_owned),
            bootstrap: bootstrap.map(str::to_owned),
        }
    }

    fn told(wants: &Source, has: &Source, provider: Option<bool>) -> Vec<String> {
        let list = outdated(wants, has, provider);
        list.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_machine_is_out_of_date_in_what_differs_and_in_nothing_that_is_not_known() {
        let pool = source(Some("v1.37.2"), Some("Secret new"));
        let nothing: [&str; 0] = [];
        assert_eq!(told(&pool, &pool, Some(true)), nothing);
        assert_eq!(told(&pool, &source(None, None), None), nothing);
        assert_eq!(told(&source(None, None), &pool, None), nothing);
        let same = source(Some("1.37.2"), Some("Secret new"));
        assert_eq!(told(&pool, &same, Some(true)), nothing);
        let old = source(Some("v1.36.0"), Some("Secret old"));
        assert_eq!(
            told(&pool, &old, Some(false)),
            [
                "Version v1.36.0, v1.37.2 required",
                "Bootstrapped with Secret old, Secret new required",
                "Instance was launched from an older template",
            ]
        );
    }
}
