//! Point 5: what a person has confirmed goes beyond the cap.

use chrono::TimeDelta;

use super::model::*;
use crate::pure::{FindingCode, plan};

const NOON: &str = "2026-12-10T12:00:00Z";

#[test]
fn s20_what_a_person_has_confirmed_goes_beyond_the_cap_once_and_nothing_else_does() {
    let now = at(NOON);
    let mut found = healthy(now, &policy());
    attach_days(&mut found, day("2026-11-01"), day("2026-11-10"));
    let first = plan(now, &policy(), &found);
    assert_eq!(shown(&first), each("detach", "2026-11-01", "2026-11-04"));
    assert_eq!(
        (first.due.detach.len(), first.due.drop.len()),
        (10, 0),
        "due is more than the cap"
    );
    assert!(
        only(&first, FindingCode::BlockedByCap)
            .remedy
            .contains("inboxd confirm drops")
    );

    // Confirmed, and then a day more comes due: the day that nobody was asked about waits.
    found.confirmed = first.due;
    attach(&mut found, day("2026-10-31"));
    let second = plan(now, &policy(), &found);
    assert_eq!(shown(&second), each("detach", "2026-11-01", "2026-11-10"));
    assert!(only(&second, FindingCode::BlockedByCap).message.starts_with("1 more"));
    let found = apply(found, &second, now);
    assert!(found.confirmed.is_empty(), "once");
    let third = plan(now, &policy(), &found);
    assert_eq!(shown(&third), ["detach 2026-10-31"]);

    // Their drops are other removals, and were not confirmed.
    let over = now + policy().drop_grace;
    let (_, later) = run(found, &policy(), over);
    assert_eq!(count_of(&later, "drop"), 4);
}

#[test]
fn fewer_confirmed_than_the_cap_leave_the_rest_of_it_to_the_oldest_others() {
    let now = at(NOON);
    let mut found = healthy(now, &policy());
    for back in [20, 21, 22, 23, 24, 25] {
        loose(
            &mut found,
            day("2026-12-10").plus(-back),
            Some(now - TimeDelta::days(2)),
        );
    }
    found.confirmed.drop = [day("2026-11-20"), day("2026-11-19")].into();
    found.confirmed.detach = [day("2026-11-15")].into();
    assert_eq!(
        shown(&plan(now, &policy(), &found)),
        [
            "drop 2026-11-15",
            "drop 2026-11-16",
            "drop 2026-11-19",
            "drop 2026-11-20"
        ]
    );
}

#[test]
fn a_confirmation_lifts_the_cap_and_no_other_condition() {
    let now = at(NOON);
    let mut found = healthy(now, &policy());
    attach_days(&mut found, day("2026-11-01"), day("2026-11-10"));
    found.confirmed = plan(now, &policy(), &found).due;
    found
        .confirmed
        .detach
        .extend([day("2026-12-09"), day("2026-12-10"), day("2026-12-12")]);
    found.held = [(day("2026-11-03"), now)].into();
    let steps = shown(&plan(now, &policy(), &found));
    assert_eq!(steps.len(), 9, "{steps:?}");
    assert!(
        !steps
            .iter()
            .any(|step| step.contains("2026-11-03") || step.contains("2026-12")),
        "{steps:?}"
    );
    found.clocks.trusted = Some(now - TimeDelta::days(400));
    let blocked = plan(now, &policy(), &found);
    assert_eq!((shown(&blocked), blocked.due.len()), (vec![], 0));
    assert!(
        only(&blocked, FindingCode::BlockedByClock)
            .remedy
            .contains("inboxd confirm clock")
    );
}

fn count_of(plan: &crate::pure::Plan, action: &str) -> usize {
    shown(plan).iter().filter(|step| step.starts_with(action)).count()
}
