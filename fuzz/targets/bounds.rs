//! Bounds as the catalog prints them: none panics, and those of a day read back as that day.
#![no_main]

use inboxd::{Bounds, Day, Routing, Span};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    for routing in [Routing::ProcessedAt, Routing::MessageId] {
        let bounds = Bounds::parse(text, routing);
        let Some(day) = bounds.day() else { continue };
        assert_eq!(bounds.span(), Some(Span::of(day)));
        let [from, to] = Bounds::ends(day, routing);
        let printed = format!("FOR VALUES FROM ('{from}') TO ('{to}')");
        assert_eq!(Bounds::parse(&printed, routing).day(), Some(day), "{printed}");
    }
    if let Ok(day) = text.parse::<Day>() {
        assert_eq!(day.to_string().parse(), Ok(day));
        assert_eq!(Day::containing(day.start()), day);
        assert!(day.start() < day.end());
    }
});
