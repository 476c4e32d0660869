//! The timetable: keeps the schedule alive. Knows nothing of what is asked for.
//!
//! The scheduler remembers the next time of each job by the wall clock. When that steps back, the next time lies where the
//! clock was, and nothing fires until it is there again: after a leap of 400 days and back, for 400 days. So the timetable
//! watches the clock and the schedule's heart by a clock that does not step, and begins a new schedule when either says so.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use chrono::{DateTime, TimeDelta, Utc};
use tokio_cron_scheduler::{Job, JobScheduler, JobSchedulerError};
use tokio_util::sync::CancellationToken;

use super::{
    caught::caught,
    config::Config,
    worker::{Asker, Heart},
};
use crate::{clock::Clock, maintain::Trigger};

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Slewing moves a clock by milliseconds a second; what goes further is a step.
const STEP: TimeDelta = TimeDelta::seconds(2);
/// The heart beats every half minute. Before it counts as dead, a new schedule has been tried.
const HEART_MAY_BE_SILENT_FOR: Duration = Duration::from_secs(95);

/// What it takes to begin a schedule.
pub(super) struct Timetable {
    pub(super) config: Arc<Config>,
    pub(super) askers: Vec<Asker>,
    pub(super) heart: Heart,
    pub(super) clock: Clock,
}

impl Timetable {
    /// Begins the first schedule, and the watch over it: from before it, for a clock that steps back while it begins leaves its
    /// next time where the clock was.
    pub(super) async fn start(&self) -> Result<(JobScheduler, Watch), JobSchedulerError> {
        let watch = Watch::new(self.clock.now(), Instant::now());
        Ok((self.begin().await?, watch))
    }

    /// Begins a schedule. Its jobs only ask and beat: what is asked for runs in the workers, one at a time, and no panic
    /// can stop the schedule.
    async fn begin(&self) -> Result<JobScheduler, JobSchedulerError> {
        let scheduler = JobScheduler::new().await?;
        let (askers, heart) = (self.askers.clone(), self.heart.clone());
        let asking = Job::new_async(self.config.schedule.six_fields(), move |_, _| {
            askers.iter().for_each(|asker| asker.ask(Trigger::Schedule));
            Box::pin(std::future::ready(()))
        })?;
        let beating = Job::new_async("*/30 * * * * *", move |_, _| {
            heart.beat();
            Box::pin(std::future::ready(()))
        })?;
        scheduler.add(asking).await?;
        scheduler.add(beating).await?;
        scheduler.start().await?;
        Ok(scheduler)
    }

    /// Keeps a schedule alive until shutdown.
    pub(super) async fn keep(self, (mut scheduler, mut watch): (JobScheduler, Watch), shutdown: CancellationToken) {
        loop {
            tokio::select! {
                () = shutdown.cancelled() => break,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            caught("the timetable", self.look(&mut watch, &mut scheduler)).await;
        }
        end(&mut scheduler).await;
    }

    async fn look(&self, watch: &mut Watch, scheduler: &mut JobScheduler) {
        let Some(why) = watch.look(self.clock.now(), Instant::now(), self.heart.silent_for()) else {
            return;
        };
        tracing::warn!("{why}; the schedule begins anew");
        end(scheduler).await;
        match self.begin().await {
            Ok(begun) => *scheduler = begun,
            // Tried again once the heart has been silent for as long again.
            Err(error) => tracing::error!(%error, "the schedule could not begin anew; restart the service"),
        }
        // Whatever the old one would have asked for by now.
        self.askers.iter().for_each(|asker| asker.ask(Trigger::Schedule));
    }
}

async fn end(scheduler: &mut JobScheduler) {
    if let Err(error) = scheduler.shutdown().await {
        tracing::warn!(%error, "the schedule did not end cleanly");
    }
}

/// What is known of the clock and of the schedule at the last look.
#[derive(Debug)]
pub(super) struct Watch {
    wall: DateTime<Utc>,
    at: Instant,
    /// When a schedule was begun last.
    begun_at: Instant,
}

impl Watch {
    fn new(wall: DateTime<Utc>, at: Instant) -> Self {
        Self { wall, at, begun_at: at }
    }

    /// Why a new schedule is to begin, if it is.
    fn look(&mut self, wall: DateTime<Utc>, at: Instant, silent_for: Duration) -> Option<String> {
        let passed = TimeDelta::from_std(at.duration_since(self.at)).unwrap_or(TimeDelta::MAX);
        let back = passed - (wall - self.wall);
        (self.wall, self.at) = (wall, at);
        let since_begun = at.duration_since(self.begun_at);
        // Also a step ahead: it may have been more, with some of it taken back between two looks.
        let why = if back.abs() > STEP {
            format!("the host's clock has stepped by {} s", -back.num_seconds())
        } else if silent_for.min(since_begun) > HEART_MAY_BE_SILENT_FOR {
            format!("the schedule has been silent for {} s", silent_for.as_secs())
        } else {
            return None;
        };
        self.begun_at = at;
        Some(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wall(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    #[test]
    fn s15_a_clock_that_steps_begins_a_new_schedule_and_one_that_goes_on_does_not() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut watch = Watch::new(wall("2026-12-01T12:00:00Z"), start);
        let none = Duration::ZERO;
        assert_eq!(watch.look(wall("2026-12-01T12:00:00Z"), start, none), None);
        assert_eq!(watch.look(wall("2026-12-01T12:00:01Z"), at(1), none), None);
        let why = watch.look(wall("2028-01-05T12:00:02Z"), at(2), none).unwrap();
        assert!(why.contains("stepped by 34560000 s"), "{why}");
        let why = watch.look(wall("2026-12-01T12:00:03Z"), at(3), none).unwrap();
        assert!(why.contains("stepped by -34560000 s"), "{why}");
        assert_eq!(watch.look(wall("2026-12-01T12:00:04Z"), at(4), none), None);
        assert_eq!(
            watch.look(wall("2026-12-01T12:00:04Z"), at(5), none),
            None,
            "a leap second is none"
        );
        // A machine that was suspended: the monotonic clock stood, the wall clock went on.
        assert!(watch.look(wall("2026-12-01T20:00:04Z"), at(6), none).is_some());
    }

    #[test]
    fn s15_a_schedule_that_began_in_a_leap_begins_anew_when_the_clock_is_back_before_the_first_look() {
        let start = Instant::now();
        let mut watch = Watch::new(wall("2028-01-05T12:00:00Z"), start);
        let why = watch.look(
            wall("2026-12-01T12:00:01Z"),
            start + Duration::from_secs(1),
            Duration::ZERO,
        );
        assert!(why.unwrap().contains("stepped by -34560000 s"));
    }

    #[test]
    fn s4_a_schedule_that_is_silent_is_begun_anew_before_it_counts_as_dead_and_not_at_each_look() {
        let start = Instant::now();
        let begin = wall("2026-12-01T12:00:00Z");
        let mut watch = Watch::new(begin, start);
        let mut look = |seconds: u64| {
            let passed = Duration::from_secs(seconds);
            let wall = begin + TimeDelta::from_std(passed).unwrap();
            watch.look(wall, start + passed, passed)
        };
        assert_eq!(look(95), None);
        assert!(look(96).unwrap().contains("silent for 96 s"));
        assert_eq!(look(97), None, "the new one is given as long");
        assert_eq!(look(191), None);
        assert!(look(192).is_some());
    }
}
