//! The handler as the rest sees it: for one delivery, and for the fresh ones of a batch.

use std::{future::Future, marker::PhantomData};

use sqlx::{Postgres, Transaction};

use crate::claim::BoxError;

/// Work on one delivery.
pub(super) trait Work<D> {
    fn on_one(&self, tx: &mut Transaction<'_, Postgres>, delivery: &D) -> impl Future<Output = Result<(), BoxError>>;
}

/// Work on several at once, of which one may be all.
pub(super) trait WorkOnMany<D>: Work<D> {
    fn on_many(
        &self,
        tx: &mut Transaction<'_, Postgres>,
        deliveries: &[&D],
    ) -> impl Future<Output = Result<(), BoxError>>;
}

/// A handler of single deliveries.
pub(super) struct Single<H, E>(H, PhantomData<fn() -> E>);

/// A handler of batches.
pub(super) struct Many<H, E>(H, PhantomData<fn() -> E>);

impl<H, E> Single<H, E> {
    pub(super) fn new(handler: H) -> Self {
        Self(handler, PhantomData)
    }
}

impl<H, E> Many<H, E> {
    pub(super) fn new(handler: H) -> Self {
        Self(handler, PhantomData)
    }
}

impl<D, H, E> Work<D> for Single<H, E>
where
    H: AsyncFn(&mut Transaction<'_, Postgres>, &D) -> Result<(), E>,
    E: Into<BoxError>,
{
    async fn on_one(&self, tx: &mut Transaction<'_, Postgres>, delivery: &D) -> Result<(), BoxError> {
        (self.0)(tx, delivery).await.map_err(Into::into)
    }
}

impl<D, H, E> Work<D> for Many<H, E>
where
    H: AsyncFn(&mut Transaction<'_, Postgres>, &[&D]) -> Result<(), E>,
    E: Into<BoxError>,
{
    async fn on_one(&self, tx: &mut Transaction<'_, Postgres>, delivery: &D) -> Result<(), BoxError> {
        self.on_many(tx, &[delivery]).await
    }
}

impl<D, H, E> WorkOnMany<D> for Many<H, E>
where
    H: AsyncFn(&mut Transaction<'_, Postgres>, &[&D]) -> Result<(), E>,
    E: Into<BoxError>,
{
    async fn on_many(&self, tx: &mut Transaction<'_, Postgres>, deliveries: &[&D]) -> Result<(), BoxError> {
        (self.0)(tx, deliveries).await.map_err(Into::into)
    }
}
