//! Names and markers: what is taken is shown so that it reads back, and fits into what is derived from it.
#![no_main]

use inboxd::{Day, Derived, Ident, LeftByDrain, Marker, TableName};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(table) = text.parse::<TableName>() {
        assert_eq!(table.to_string().parse().as_ref(), Ok(&table));
        let day: Day = "2026-12-01".parse().expect("a day");
        let partition = table.partition(day);
        assert_eq!(table.day_of(partition.as_str()), Some(day));
        for derived in [Derived::PartitionKey(day), Derived::DrainCopyKey(day), Derived::DrainCopies] {
            assert!(table.derive(derived).is_ok(), "{derived:?} of {table}");
        }
        let _ = table.day_of(text);
    }
    if let Ok(ident) = Ident::new(text) {
        assert_eq!(ident.as_str(), text);
    }
    if let Ok(marker) = text.parse::<Marker>() {
        assert_eq!(marker.to_string().parse(), Ok(marker));
    }
    if let Ok(left) = text.parse::<LeftByDrain>() {
        assert_eq!(left.to_string().parse(), Ok(left));
    }
});
