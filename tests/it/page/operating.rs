//! What a person does, with what it comes to in the database.

use super::*;

async fn audited(site: &Site) -> Vec<(String, String)> {
    sqlx::query_as("select action, actor from inboxd.audit order by id")
        .fetch_all(&mut site.database.connect().await)
        .await
        .unwrap()
}

async fn must_be_audited(site: &Site, actions: &[&str], actor: &str) {
    let audited = audited(site).await;
    let wanted: Vec<(String, String)> = actions
        .iter()
        .map(|action| (action.to_string(), actor.to_owned()))
        .collect();
    assert_eq!(audited[audited.len() - wanted.len()..], wanted);
}

#[tokio::test]
async fn a_run_is_had_by_a_button_and_told_once() {
    let site = Site::ready("").await;
    site.play("run_now", &[]).await;
    let manual: i64 = sqlx::query_scalar("select count(*) from inboxd.runs where trigger = 'manual'")
        .fetch_one(&mut site.database.connect().await)
        .await
        .unwrap();
    assert_eq!(manual, 1);
}

#[tokio::test]
async fn a_day_is_held_with_a_reason_and_released_after_asking_back() {
    let site = Site::ready("").await;
    let day = site.day(0).await.to_string();
    site.play("hold_and_release", &[("DAY", &day)]).await;
    must_be_audited(&site, &["hold", "release_hold"], "loopback").await;
}

#[tokio::test]
async fn removals_beyond_the_cap_are_confirmed_and_one_of_them_is_taken_back() {
    let site = Site::ready("[[inbox]]\ntable = 'public.inbox'\nmax_drops_per_run = 1\n").await;
    site.with_days([9, 10, 11]).await;
    let day = site.day(-10).await;
    site.play("confirm_and_restore", &[("DAY", &day.to_string())]).await;
    must_be_audited(&site, &["confirm_drops", "run", "restore"], "loopback").await;
    let attached: i64 = sqlx::query_scalar("select count(*) from pg_inherits where inhrelid = $1::regclass")
        .bind(format!("public.inbox_{}", day.underscored()))
        .fetch_one(&mut site.database.connect().await)
        .await
        .unwrap();
    assert_eq!(attached, 1);
}

#[tokio::test]
async fn the_schedule_is_paused_with_a_reason_and_resumed() {
    let site = Site::ready("").await;
    site.play("pause_and_resume", &[]).await;
    must_be_audited(&site, &["pause", "resume"], "loopback").await;
}

#[tokio::test]
async fn a_wrong_token_is_refused_and_one_that_reads_has_no_buttons() {
    let site = Site::ready(TOKENS).await;
    site.play("signing_in", &[]).await;
}

#[tokio::test]
async fn all_is_read_and_done_without_a_script() {
    let site = Site::ready("").await;
    let day = site.day(1).await.to_string();
    site.play("without_script", &[("DAY", &day)]).await;
    must_be_audited(&site, &["hold", "run"], "loopback").await;
}

#[tokio::test]
async fn all_is_read_and_done_with_the_keyboard_alone() {
    let site = Site::ready("").await;
    let day = site.day(1).await.to_string();
    site.play("keyboard", &[("DAY", &day)]).await;
    must_be_audited(&site, &["hold"], "loopback").await;
}
