//! What a broker brings: deliveries, and where they come from.

use std::{borrow::Cow, future::Future, time::Duration};

use crate::claim::BoxError;

/// One delivery of a message. Whatever is done with it consumes it, so that nothing is done twice: many brokers close the
/// channel on a second ack.
///
/// ```compile_fail,E0382
/// # // M2: a second ack is no program.
/// # use inboxd::claim::middleware::Delivery;
/// async fn ack_twice(delivery: impl Delivery) {
///     let _ = delivery.ack().await;
///     let _ = delivery.ack().await;
/// }
/// ```
/// ```
/// # // Else it would be no program for another reason.
/// # use inboxd::claim::middleware::Delivery;
/// async fn ack(delivery: impl Delivery) {
///     let _ = delivery.ack().await;
/// }
/// ```
///
/// A delivery that is dropped is left with the broker, which delivers it again when it gives this consumer up.
pub trait Delivery: Send {
    /// Whether the broker itself waits before it delivers again. Where it does not, the consumer waits before it tells it.
    const BROKER_DELAYS: bool;

    /// What the message is about, for the inbox's `topic`: a subject, a routing key, a topic.
    fn topic(&self) -> Cow<'_, str>;

    /// The message itself.
    fn payload(&self) -> &[u8];

    /// A header as text; none where it is not there, or is no text.
    fn header(&self, name: &str) -> Option<Cow<'_, str>>;

    /// The id in the broker's own property for it.
    fn id_property(&self) -> Option<Cow<'_, str>>;

    /// Where the message lies in the broker, the same in each delivery of it and unlike that of any other message; none
    /// where the broker has nothing such.
    fn coordinates(&self) -> Option<String>;

    /// Which delivery of the message this is, from 1, where the broker counts.
    fn attempt(&self) -> Option<u32>;

    /// How often the broker wants to hear that work goes on; none where it does not.
    fn progress_interval(&self) -> Option<Duration> {
        None
    }

    /// Tells the broker that work goes on. What fails here shows at the settlement.
    fn in_progress(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// The work is committed: never deliver it again. Returns once the broker has it, as far as the broker says so.
    ///
    /// # Errors
    /// When the broker does not have it, or it is not known. The message will be delivered again, and be a duplicate.
    fn ack(self) -> impl Future<Output = Result<(), BoxError>> + Send;

    /// Deliver it again, not before so long where [`Delivery::BROKER_DELAYS`].
    ///
    /// # Errors
    /// When the broker does not have it, or it is not known.
    fn retry_later(self, after: Duration) -> impl Future<Output = Result<(), BoxError>> + Send;

    /// It can never be processed: put it where somebody looks, and never deliver it again.
    ///
    /// # Errors
    /// When that is not certain. The message is then still with the broker.
    fn reject(self, rejection: &Rejection) -> impl Future<Output = Result<(), BoxError>> + Send;

    /// Nothing is known of its work, so say nothing about it. A broker that never delivers again what one consumer holds is
    /// told to.
    ///
    /// # Errors
    /// When the broker does not have what it is told.
    fn leave(self) -> impl Future<Output = Result<(), BoxError>> + Send
    where
        Self: Sized,
    {
        std::future::ready(Ok(()))
    }
}

/// Why a message is rejected. It travels with the message, so that who finds it there knows.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rejection {
    /// In one word: `failed`, `no_id`, `too_old`, …
    pub reason: &'static str,
    /// In a sentence. It may hold what the handler or the database said.
    pub detail: String,
    /// Which delivery it was, as far as it was counted.
    pub attempt: u32,
}

impl Rejection {
    /// Names of headers that carry it: reason, detail, attempt.
    pub const HEADERS: [&'static str; 3] = ["inboxd-reason", "inboxd-detail", "inboxd-attempt"];

    /// The longest detail in a header, in bytes. Brokers bound what all headers take together.
    const LONGEST_DETAIL: usize = 1_000;

    /// The headers with their values, each on one line.
    #[must_use]
    pub fn headers(&self) -> [(&'static str, String); 3] {
        let [reason, detail, attempt] = Self::HEADERS;
        [
            (reason, self.reason.to_owned()),
            (detail, one_line(&self.detail, Self::LONGEST_DETAIL)),
            (attempt, self.attempt.to_string()),
        ]
    }
}

fn one_line(text: &str, limit: usize) -> String {
    let mut line = String::new();
    for character in text.chars() {
        let character = if character.is_control() { ' ' } else { character };
        if line.len() + character.len_utf8() > limit {
            break;
        }
        line.push(character);
    }
    line
}

/// Where deliveries come from.
pub trait Source: Send {
    /// What it delivers.
    type Delivery: Delivery;

    /// Connects, if it is not connected. Asked before each delivery; true once it is certain that the broker is there, false where
    /// only a delivery shows it.
    ///
    /// # Errors
    /// When the broker is away, or refuses.
    fn connect(&mut self) -> impl Future<Output = Result<bool, BoxError>> + Send {
        std::future::ready(Ok(false))
    }

    /// The next delivery; none once there will never be another. After an error it is asked again, after a pause, and
    /// connects anew by itself.
    ///
    /// # Errors
    /// When the broker is away, or refuses.
    fn next(&mut self) -> impl Future<Output = Result<Option<Self::Delivery>, BoxError>> + Send;

    /// Completes once the broker has everything back, some time after the source was dropped; at once where a drop is all there
    /// is to it.
    fn closed(&self) -> impl Future<Output = ()> + Send + 'static {
        std::future::ready(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejection_fits_into_headers_whatever_its_detail_holds() {
        let rejection = Rejection {
            reason: "failed",
            detail: format!("one\r\ntwo\0{}", "ß".repeat(2_000)),
            attempt: 3,
        };
        let [reason, (_, detail), attempt] = rejection.headers();
        assert_eq!(reason, ("inboxd-reason", "failed".to_owned()));
        assert_eq!(attempt, ("inboxd-attempt", "3".to_owned()));
        assert!(detail.starts_with("one  two ß") && detail.len() <= 1_000 && !detail.contains(char::is_control));
    }
}
