//! Requests to a repairer outside: when one is made for a Machine, and when it is taken back.

use super::Verdict;

/// What is known of the request for a Machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// There is none.
    None,
    /// There is one, made for this Machine.
    Made,
    /// There is one that is being deleted, or that is not this Machine's.
    NotOurs,
}

/// What is done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Leave,
    /// One is made.
    Make,
    /// It is deleted.
    TakeBack,
}

/// Decides for a Machine of which a check says that. `may` is whether the check's limit lets it be repaired, `leaving`
/// whether it is being deleted: then whoever repairs it is done or too late, and its request goes with it.
///
/// A request that was made stays when the limit is passed later, and while nothing can be said of the Machine; only one that
/// is found healthy needs no repair. Source: Cluster API.
pub fn decide(verdict: &Verdict, may: bool, leaving: bool, request: Request) -> Step {
    match (verdict, request) {
        _ if leaving => Step::Leave,
        (Verdict::Unhealthy { .. }, Request::None) if may => Step::Make,
        (Verdict::Healthy, Request::Made) => Step::TakeBack,
        _ => Step::Leave,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Reason;
    use super::*;

    #[test]
    fn a_sick_machine_has_one_request_and_a_healthy_one_none() {
        let sick = Verdict::Unhealthy {
            reason: Reason::UnhealthyNode,
            why: Vec::new(),
        };
        assert_eq!(decide(&sick, true, false, Request::None), Step::Make);
        assert_eq!(decide(&sick, false, false, Request::None), Step::Leave);
        assert_eq!(decide(&sick, true, true, Request::None), Step::Leave);
        for may in [false, true] {
            assert_eq!(decide(&sick, may, false, Request::Made), Step::Leave);
            assert_eq!(decide(&sick, may, false, Request::NotOurs), Step::Leave);
            let well = Verdict::Healthy;
            assert_eq!(decide(&well, may, false, Request::Made), Step::TakeBack);
            assert_eq!(decide(&well, may, true, Request::Made), Step::Leave);
            assert_eq!(decide(&well, may, false, Request::None), Step::Leave);
            assert_eq!(decide(&well, may, false, Request::NotOurs), Step::Leave);
            for unsure in [Verdict::Suspect(None), Verdict::Unseen] {
                assert_eq!(decide(&unsure, may, false, Request::Made), Step::Leave);
                assert_eq!(decide(&unsure, may, false, Request::None), Step::Leave);
            }
        }
    }
}
