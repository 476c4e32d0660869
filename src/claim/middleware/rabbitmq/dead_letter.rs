//! Where rejected messages go, and the channel on which they are published.

use lapin::{
    BasicProperties, Channel, Confirmation, Connection,
    options::{BasicPublishOptions, ConfirmSelectOptions},
};
use tokio::sync::Mutex;

use crate::claim::BoxError;

#[derive(Debug)]
pub(super) struct DeadLetter {
    pub(super) exchange: String,
    pub(super) routing_key: Option<String>,
}

/// A channel with confirms, opened when it is needed first. Not the consumer's: the broker closes a channel that publishes to
/// an exchange that is not there, and every delivery on it would be lost to us.
pub(super) struct Publisher {
    connection: Connection,
    channel: Mutex<Option<Channel>>,
}

impl Publisher {
    pub(super) fn new(connection: Connection) -> Self {
        Self {
            connection,
            channel: Mutex::new(None),
        }
    }

    /// Publishes, and returns once the broker has put it into a queue.
    ///
    /// # Errors
    /// When that is not certain.
    pub(super) async fn publish(
        &self,
        exchange: &str,
        routing_key: &str,
        payload: &[u8],
        properties: BasicProperties,
    ) -> Result<(), BoxError> {
        let mut slot = self.channel.lock().await;
        let channel = match slot.take() {
            Some(channel) => channel,
            None => self.open().await?,
        };
        // A message that no queue takes comes back instead of vanishing.
        let options = BasicPublishOptions {
            mandatory: true,
            ..Default::default()
        };
        let confirmation = channel
            .basic_publish(exchange.into(), routing_key.into(), options, payload, properties)
            .await?
            .await?;
        // Not put back after an error: another is opened.
        *slot = Some(channel);
        match confirmation {
            Confirmation::Ack(None) => Ok(()),
            Confirmation::Ack(Some(_)) => {
                Err(format!("exchange {exchange:?} has no queue for routing key {routing_key:?}").into())
            }
            Confirmation::Nack(_) => Err("the broker could not store the dead letter".into()),
            Confirmation::NotRequested => Err("the channel confirms nothing".into()),
        }
    }

    async fn open(&self) -> Result<Channel, BoxError> {
        let channel = self.connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(channel)
    }
}
