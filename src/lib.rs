//! inboxd
