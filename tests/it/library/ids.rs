//! Ids made of names: every language makes the same.

use chrono::{DateTime, Utc};
use inboxd::claim::{MessageId, MessageIdError};
use uuid::Uuid;

#[derive(serde::Deserialize)]
struct Vector {
    kind: String,
    name: String,
    created_at: Option<DateTime<Utc>>,
    id: Option<Uuid>,
}

/// The Python consumer makes its ids of the same file.
#[test]
fn the_ids_of_names_are_those_of_every_language() {
    let vectors: Vec<Vector> = serde_json::from_str(include_str!("../vectors/message_ids.json")).unwrap();
    assert!(vectors.len() >= 6);
    for vector in vectors {
        let id = match vector.created_at {
            None => MessageId::from_name(&vector.name),
            Some(created_at) => MessageId::time_ordered(created_at, &vector.name),
        };
        match vector.id {
            Some(expected) => assert_eq!(id.unwrap().uuid(), expected, "{} {:?}", vector.kind, vector.name),
            None => assert_eq!(id, Err(MessageIdError::Empty), "{} {:?}", vector.kind, vector.name),
        }
    }
}

#[test]
fn the_namespace_is_derived_as_it_is_documented() {
    let derived = Uuid::new_v5(&Uuid::NAMESPACE_URL, b"https://github.com/inboxd/inboxd/message-id");
    assert_eq!(MessageId::NAMESPACE, derived);
}

#[test]
fn c16_what_is_no_id_is_refused() {
    for no_id in [Uuid::nil(), Uuid::max()] {
        assert_eq!(MessageId::from_uuid(no_id), Err(MessageIdError::NotAnId(no_id)));
        assert!(no_id.to_string().parse::<MessageId>().is_err());
    }
    assert_eq!(MessageId::from_name([]), Err(MessageIdError::Empty));
    for text in ["", "order-1", "0199a0c5-53c4-7d2c-9f3e-6f2f6c1b8a1"] {
        let refused = text.parse::<MessageId>().unwrap_err();
        assert!(refused.to_string().contains("from_name"), "{refused}");
    }
    let before_1970 = "1969-12-31T23:59:59.999Z".parse().unwrap();
    assert!(MessageId::time_ordered(before_1970, "x").is_err());
    assert!(MessageId::time_ordered(DateTime::<Utc>::MAX_UTC, "x").is_err());
}

#[test]
fn a_time_ordered_id_says_when_it_was_created_to_the_millisecond() {
    let early: DateTime<Utc> = "2026-12-01T23:59:59.999999Z".parse().unwrap();
    let late: DateTime<Utc> = "2026-12-02T00:00:00Z".parse().unwrap();
    let (first, second) = (
        MessageId::time_ordered(early, "z").unwrap(),
        MessageId::time_ordered(late, "a").unwrap(),
    );
    assert!(first < second);
    assert_eq!(first.created_at(), Some("2026-12-01T23:59:59.999Z".parse().unwrap()));
    assert_eq!(second.created_at(), Some(late));
    assert_eq!(MessageId::from_name("order-1").unwrap().created_at(), None);
}
