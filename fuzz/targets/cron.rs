//! Cron text: what is taken fires, later and later, and in bounded time.
#![no_main]

use inboxd::service::Schedule;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(schedule) = text.parse::<Schedule>() else {
        return;
    };
    let after = "2026-12-01T12:00:00Z".parse().expect("a time");
    let next = schedule.next(after, 3);
    assert!(next.first().is_none_or(|first| *first > after));
    assert!(next.is_sorted_by(|one, other| one < other), "{next:?}");
    let again: Schedule = schedule.to_string().parse().expect("it was read before");
    assert_eq!(again.next(after, 3), next);
});
