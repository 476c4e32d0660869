//! The claim functions, on the shared server.
