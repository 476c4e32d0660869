//! What a person sees.

use super::answers::post;
use super::*;

#[tokio::test]
async fn a_healthy_inbox_is_told_in_one_sentence_with_its_days() {
    let site = Site::ready("").await;
    site.play("healthy", &[]).await;
}

#[tokio::test]
async fn an_inbox_that_has_lived_for_a_week_shows_its_days_by_size_and_the_one_on_hold() {
    let site = Site::ready("deployment = 'orders'\n").await;
    site.with_days(1..=6).await;
    let day = site.day(-4).await;
    let form = format!("inbox={INBOX}&day={day}&reason=an+audit");
    assert_eq!(post(&site, "/act/hold", &[], &form).await.status(), 303);
    // What was made by hand becomes the inbox's own.
    assert_eq!(post(&site, "/act/run", &[], "").await.status(), 303);
    site.play("week", &[]).await;
}

#[tokio::test]
async fn what_should_be_looked_at_is_told_with_what_to_do() {
    let site = Site::ready("[[inbox]]\ntable = 'public.inbox'\nmax_drops_per_run = 1\n").await;
    site.with_days([3, 5, 9, 10, 11]).await;
    site.seen_as("warn").await;
    site.play("warning", &[]).await;
}

#[tokio::test]
async fn an_inbox_without_partitions_is_red_until_a_run_is_asked_for() {
    let site = Site::ready("").await;
    site.without_partitions().await;
    site.seen_as("fail").await;
    site.play("broken", &[]).await;
}

#[tokio::test]
async fn two_hundred_inboxes_stay_usable_the_worst_first() {
    let mut config = String::new();
    for number in 0..200 {
        config.push_str(&format!(
            "[[inbox]]\nname = 'inbox_{number:03}'\ntable = 'public.inbox_{number:03}'\nahead = 1\n"
        ));
    }
    let site = Site::ready(&config).await;
    let mut connection = site.database.connect().await;
    sql(&mut connection, "drop table public.inbox_123").await;
    site.play("two_hundred", &[]).await;
}

#[tokio::test]
async fn an_open_page_takes_over_what_is_new_and_keeps_what_is_open_and_focused() {
    let site = Site::ready("").await;
    let mut playing = site.begin("refreshing", &[]);
    playing.wait_for("change").await;
    site.without_partitions().await;
    playing.end().await;
}

#[tokio::test]
async fn an_open_page_says_that_the_service_does_not_answer() {
    let mut site = Site::ready("").await;
    let mut playing = site.begin("stopped", &[]);
    playing.wait_for("stop").await;
    site.service.kill();
    playing.end().await;
}

#[tokio::test]
async fn a_database_that_is_away_is_told_in_our_words() {
    let folder = Folder::new();
    let nowhere = format!("postgres:///nowhere?host={}&user=nobody", folder.path().display());
    let mut command = inboxd(&["serve"]);
    command.env("DATABASE_URL", &nowhere);
    let mut service = Service::spawn(command);
    play(&service.url(""), "database_away", &[]).end().await;
}
