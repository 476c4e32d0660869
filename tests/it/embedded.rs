//! The private cluster, from outside: what it survives, what it refuses, how it is reached.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use inboxd::postgres::embedded::{Cluster, ClusterOptions, EmbeddedError};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection};

use crate::support::folder::Folder;
use crate::support::process::{self, OtherProcess};
use crate::support::server::options_in;

const LEAVER: &str = "embedded::process_that_leaves_a_server_behind";

/// Long enough for a machine under load, since it only bounds.
const A_WHILE: Duration = Duration::from_secs(30);

async fn start(options: ClusterOptions) -> Cluster {
    Cluster::start(options).await.unwrap_or_else(|error| panic!("{error}"))
}

async fn refusal(options: ClusterOptions) -> EmbeddedError {
    Cluster::start(options).await.expect_err("this start has to be refused")
}

async fn run(cluster: &Cluster, statement: &'static str) {
    let mut connection = cluster.connect_options("postgres").connect().await.unwrap();
    sqlx::query(statement).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

async fn text(cluster: &Cluster, query: &'static str) -> String {
    let mut connection = cluster.connect_options("postgres").connect().await.unwrap();
    let text = sqlx::query_scalar(query).fetch_one(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    text
}

/// Leaves a note in the cluster, to be found again.
async fn note(cluster: &Cluster) {
    run(cluster, "create table note as select 'still here'::text as words").await;
}

async fn assert_note(cluster: &Cluster) {
    assert_eq!(text(cluster, "select words from note").await, "still here");
}

#[tokio::test]
async fn data_is_kept_over_a_stop_and_a_start() {
    let folder = Folder::new();
    let options = options_in(folder.path());
    let cluster = start(options.clone()).await;
    note(&cluster).await;
    let first = cluster.pid();
    cluster.stop().await.unwrap();
    assert!(!process::lives(first));

    let cluster = start(options).await;
    assert_note(&cluster).await;
    assert_ne!(cluster.pid(), first);
}

#[tokio::test]
async fn a_restart_changes_the_server_and_keeps_the_data() {
    let folder = Folder::new();
    let mut cluster = start(options_in(folder.path())).await;
    note(&cluster).await;
    let first = cluster.pid();
    cluster.restart().await.unwrap();
    assert!(!process::lives(first) && cluster.is_running());
    assert_note(&cluster).await;
}

#[tokio::test]
async fn a_killed_server_is_noticed_and_restarts_with_its_data() {
    let folder = Folder::new();
    let mut options = options_in(folder.path());
    options.durable = true;
    let mut cluster = start(options).await;
    note(&cluster).await;
    // A busy backend outlives its server for a moment and must not be in the way.
    let _busy = cluster.connect_options("postgres").connect().await.unwrap();
    assert!(cluster.is_running());
    process::kill(cluster.pid());
    let status = tokio::time::timeout(A_WHILE, cluster.wait_exit())
        .await
        .expect("the end is noticed");
    assert!(status.is_some_and(|status| !status.success()), "{status:?}");
    assert!(!cluster.is_running());

    cluster.restart().await.unwrap();
    assert_note(&cluster).await;
}

#[tokio::test]
async fn a_server_left_by_a_killed_parent_is_taken_over_and_stopped_in_the_end() {
    let folder = Folder::new();
    let left = leave_a_server(folder.path());
    let mut cluster = start(options_in(folder.path())).await;
    assert_eq!(cluster.pid(), left);
    assert_note(&cluster).await;
    assert!(cluster.is_running());
    cluster.stop().await.unwrap();
    assert!(!process::lives(left));
}

#[tokio::test]
async fn a_server_that_was_taken_over_is_noticed_when_it_dies() {
    let folder = Folder::new();
    let left = leave_a_server(folder.path());
    let mut cluster = start(options_in(folder.path())).await;
    process::kill(left);
    tokio::time::timeout(A_WHILE, cluster.wait_exit())
        .await
        .expect("the end is noticed");
    cluster.restart().await.unwrap();
    assert_ne!(cluster.pid(), left);
    assert_note(&cluster).await;
}

#[tokio::test]
async fn a_left_server_with_other_settings_is_restarted_with_the_new_ones() {
    let folder = Folder::new();
    let left = leave_a_server(folder.path());
    let mut options = options_in(folder.path());
    options.settings.push(("work_mem".into(), "9MB".into()));
    let cluster = start(options).await;
    assert!(cluster.pid() != left && !process::lives(left));
    assert_eq!(text(&cluster, "show work_mem").await, "9MB");
    assert_note(&cluster).await;
}

/// Lets another process start a server in `folder`, kills that process, and gives the server's pid.
fn leave_a_server(folder: &Path) -> u32 {
    let mut leaver = OtherProcess::run(LEAVER, folder);
    let pid = leaver.report().parse().unwrap();
    leaver.kill();
    assert!(process::lives(pid), "the server outlives a killed parent");
    pid
}

#[tokio::test]
#[ignore = "run by other tests as a process of its own"]
async fn process_that_leaves_a_server_behind() {
    let Some(report_file) = process::report_file() else {
        return;
    };
    let cluster = start(options_in(report_file.parent().unwrap())).await;
    note(&cluster).await;
    process::report_and_wait(&cluster.pid().to_string());
}

#[tokio::test]
async fn dropping_a_cluster_ends_its_server() {
    let folder = Folder::new();
    let cluster = start(options_in(folder.path())).await;
    let pid = cluster.pid();
    drop(cluster);
    process::poll(A_WHILE, || (!process::lives(pid)).then_some(())).expect("the server ends");
    // The lock is let go of with the server, so the folder is free again.
    let free = process::poll(A_WHILE, || {
        let lock = fs::File::options()
            .write(true)
            .open(folder.path().join("data.lock"))
            .unwrap();
        lock.try_lock().ok()
    });
    assert!(free.is_some());
}

#[tokio::test]
async fn a_second_start_is_refused_while_the_first_lives() {
    let folder = Folder::new();
    let options = options_in(folder.path());
    let mut cluster = start(options.clone()).await;
    let error = refusal(options).await;
    assert!(matches!(error, EmbeddedError::Locked { .. }), "{error}");
    let message = error.to_string();
    assert!(
        message.contains(&*folder.path().join("data").to_string_lossy()),
        "{message}"
    );
    assert!(message.contains(&format!("pid {}", std::process::id())), "{message}");
    assert!(cluster.is_running());
    note(&cluster).await;
}

#[tokio::test]
async fn a_folder_of_another_major_version_is_refused_with_the_remedy() {
    let folder = Folder::new();
    let options = options_in(folder.path());
    fs::create_dir(&options.data_dir).unwrap();
    for (version, remedy) in [("9.6", "Install PostgreSQL 9.6"), ("11", "Install PostgreSQL 11")] {
        fs::write(options.data_dir.join("PG_VERSION"), format!("{version}\n")).unwrap();
        let error = refusal(options.clone()).await;
        assert!(matches!(error, EmbeddedError::OtherMajor { .. }), "{error}");
        let message = error.to_string();
        assert!(
            message.contains(remedy) && message.contains("PG_BINDIR") && message.contains("pg_upgrade"),
            "{message}"
        );
    }
    assert_eq!(names_in(&options.data_dir), ["PG_VERSION"]);
}

#[tokio::test]
async fn a_foreign_folder_is_refused_and_left_untouched() {
    let folder = Folder::new();
    let options = options_in(folder.path());
    fs::create_dir(&options.data_dir).unwrap();
    fs::write(options.data_dir.join("thesis.txt"), "years of work").unwrap();
    let error = refusal(options.clone()).await;
    assert!(matches!(error, EmbeddedError::NotACluster { .. }), "{error}");
    assert_eq!(
        fs::read_to_string(options.data_dir.join("thesis.txt")).unwrap(),
        "years of work"
    );
    assert_eq!(names_in(&options.data_dir), ["thesis.txt"]);
    assert_eq!(names_in(folder.path()), ["data"], "nor was anything put beside it");
}

#[tokio::test]
async fn an_empty_folder_becomes_a_cluster() {
    let folder = Folder::new();
    let options = options_in(folder.path());
    fs::create_dir(&options.data_dir).unwrap();
    note(&start(options).await).await;
}

#[tokio::test]
async fn an_initdb_that_was_cut_short_is_done_again() {
    let folder = Folder::new();
    let options = options_in(folder.path());
    let aside = folder.path().join("data.initializing");
    fs::create_dir_all(aside.join("0/base")).unwrap();
    fs::write(aside.join("0/PG_VERSION"), "15\n").unwrap();
    fs::write(aside.join("made-by-inboxd"), "").unwrap();
    let cluster = start(options).await;
    note(&cluster).await;
    assert!(!aside.exists());
}

#[tokio::test]
async fn an_initdb_whose_parent_was_killed_does_not_spoil_the_next_one() {
    let folder = Folder::new();
    let aside = folder.path().join("data.initializing");
    let leaver = OtherProcess::run(LEAVER, folder.path());
    process::poll(A_WHILE, || aside.join("0/PG_VERSION").exists().then_some(())).expect("initdb begins");
    leaver.kill();
    // The orphan works on, fails, and removes what it made.
    let cluster = start(options_in(folder.path())).await;
    note(&cluster).await;
    assert!(!aside.exists());
}

#[tokio::test]
async fn a_foreign_folder_in_the_place_of_the_unfinished_one_is_left_untouched() {
    let folder = Folder::new();
    let aside = folder.path().join("data.initializing");
    fs::create_dir(&aside).unwrap();
    fs::write(aside.join("thesis.txt"), "years of work").unwrap();
    let error = refusal(options_in(folder.path())).await;
    assert!(matches!(error, EmbeddedError::NotACluster { .. }), "{error}");
    assert_eq!(names_in(&aside), ["thesis.txt"]);
}

#[tokio::test]
async fn without_server_programs_one_message_says_where_it_looked_and_what_to_do() {
    let folder = Folder::new();
    let mut options = options_in(folder.path());
    options.bin_dir = Some(folder.path().join("no-such-bin"));
    let error = refusal(options).await;
    assert!(matches!(error, EmbeddedError::NoBinaries { .. }), "{error}");
    let message = error.to_string();
    assert!(message.contains("no-such-bin"), "{message}");
    assert!(
        message.contains("apt-get install postgresql") && message.contains("PG_BINDIR"),
        "{message}"
    );
    assert!(!message.contains('\n'), "{message}");
    assert!(names_in(folder.path()).is_empty(), "nothing was made");
}

#[tokio::test]
async fn a_stale_pid_file_is_not_in_the_way_whoever_has_its_number_now() {
    let folder = Folder::new();
    let options = options_in(folder.path());
    let mut cluster = start(options.clone()).await;
    note(&cluster).await;
    let pid_file = options.data_dir.join("postmaster.pid");
    let socket_lock = options.socket_dir.join(".s.PGSQL.5432.lock");
    let left = [&pid_file, &socket_lock].map(|file| (file, fs::read_to_string(file).unwrap()));
    let leave_with_number = |pid: u32| {
        for (file, text) in &left {
            fs::write(file, format!("{pid}\n{}", text.split_once('\n').unwrap().1)).unwrap();
            process::open_to_all(file);
        }
    };
    process::kill(cluster.pid());
    cluster.wait_exit().await;
    drop(cluster);

    // PostgreSQL itself refuses to start if the number belongs to a process of its own account.
    let mut sleep = Command::new("sleep");
    let mut stranger = process::as_owner_of(&pid_file, sleep.arg("600").current_dir("/"))
        .spawn()
        .unwrap();
    leave_with_number(stranger.id());
    let cluster = start(options.clone()).await;
    assert_note(&cluster).await;
    assert!(stranger.try_wait().unwrap().is_none(), "the stranger was left alone");
    cluster.stop().await.unwrap();
    stranger.kill().unwrap();
    stranger.wait().unwrap();

    // Now the number belongs to nobody.
    leave_with_number(stranger.id());
    assert_note(&start(options).await).await;
}

#[tokio::test]
async fn it_listens_on_the_unix_socket_alone_unless_a_port_is_asked_for() {
    let folder = Folder::new();
    let mut options = options_in(folder.path());
    let cluster = start(options.clone()).await;
    assert_eq!(text(&cluster, "show listen_addresses").await, "");
    cluster.stop().await.unwrap();

    let port = free_port();
    options.port = Some(port);
    let cluster = start(options).await;
    assert_eq!(text(&cluster, "show listen_addresses").await, "127.0.0.1");
    TcpStream::connect(("127.0.0.1", port)).unwrap();
    assert!(cluster.socket_dir().join(format!(".s.PGSQL.{port}")).exists());
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let folder = Folder::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut options = options_in(folder.path());
    options.port = Some(taken.local_addr().unwrap().port());
    let error = refusal(options).await;
    assert!(matches!(error, EmbeddedError::PortTaken { .. }), "{error}");
}

#[tokio::test]
async fn two_clusters_do_not_share_a_socket() {
    let folder = Folder::new();
    let first = start(options_in(folder.path())).await;
    let mut options = options_in(folder.path());
    options.data_dir = folder.path().join("other");
    let error = refusal(options).await;
    assert!(matches!(error, EmbeddedError::StartFailed { .. }), "{error}");
    let message = error.to_string();
    assert!(
        message.contains(".s.PGSQL.5432") && message.contains("other.log"),
        "{message}"
    );
    note(&first).await;
}

#[tokio::test]
async fn a_setting_the_server_refuses_is_told_with_the_log() {
    let folder = Folder::new();
    let mut options = options_in(folder.path());
    options.settings.push(("shared_buffers".into(), "a lot".into()));
    let message = refusal(options).await.to_string();
    assert!(
        message.contains("shared_buffers") && message.contains("data.log"),
        "{message}"
    );
}

#[tokio::test]
async fn a_socket_path_that_is_too_long_is_refused_with_its_length() {
    let folder = Folder::new();
    let mut options = options_in(folder.path());
    options.socket_dir = folder.path().join("x".repeat(100));
    let error = refusal(options).await;
    assert!(
        matches!(error, EmbeddedError::SocketPathTooLong { length, .. } if length > 107),
        "{error}"
    );
}

#[tokio::test]
async fn a_socket_path_with_a_comma_is_refused_as_libpq_would_split_it() {
    let folder = Folder::new();
    let mut options = options_in(folder.path());
    options.socket_dir = folder.path().join("one,two");
    let error = refusal(options).await;
    assert!(matches!(error, EmbeddedError::UnusablePath { .. }), "{error}");
    let default = ClusterOptions::new(folder.path().join("one,two/data")).socket_dir;
    assert!(!default.to_string_lossy().contains(','), "{}", default.display());
}

#[tokio::test]
async fn a_folder_closed_to_the_server_account_is_named() {
    if !nix::unistd::geteuid().is_root() {
        return; // Nobody else runs the server under another account.
    }
    let folder = Folder::new();
    let closed = folder.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let mut options = options_in(folder.path());
    options.data_dir = closed.join("data");
    let error = refusal(options).await;
    let blocked_by_it = matches!(&error, EmbeddedError::Unreachable { blocker, .. } if *blocker == closed);
    assert!(blocked_by_it, "{error}");
}

#[tokio::test]
async fn psql_and_sqlx_take_the_url_also_from_a_folder_with_an_odd_name() {
    let folder = Folder::new();
    let mut options = options_in(folder.path());
    options.socket_dir = folder.path().join("it's 100% \"odd\" & ü=?#");
    let cluster = start(options).await;
    run(&cluster, r#"create database "an odd/name?""#).await;
    let expected = "postgres an odd/name?";
    let question = "select current_user || ' ' || current_database()";
    let url = cluster.url("an odd/name?");

    let mut connection = url.parse::<PgConnectOptions>().unwrap().connect().await.unwrap();
    let answer: String = sqlx::query_scalar(question).fetch_one(&mut connection).await.unwrap();
    assert_eq!(answer, expected);

    assert_eq!(output(Command::new("psql").args(["-XAtc", question, &url])), expected);

    let command = format!("{} -XAtc \"{question}\"", cluster.psql_command("an odd/name?"));
    assert_eq!(output(Command::new("sh").args(["-c", &command])), expected);
}

fn output(command: &mut Command) -> String {
    let output = command.output().expect("psql is needed for this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[tokio::test]
async fn the_socket_folder_is_closed_to_other_accounts() {
    let folder = Folder::new();
    let cluster = start(options_in(folder.path())).await;
    let mode = std::os::unix::fs::MetadataExt::mode(&cluster.socket_dir().metadata().unwrap());
    assert_eq!(mode & 0o777, 0o700);
}

#[tokio::test]
async fn a_durable_cluster_syncs_to_disk() {
    let folder = Folder::new();
    let mut options = options_in(folder.path());
    options.durable = true;
    let cluster = start(options).await;
    assert_eq!(
        text(
            &cluster,
            "select current_setting('fsync') || current_setting('full_page_writes')"
        )
        .await,
        "onon"
    );
    let version_number: u32 = text(&cluster, "show server_version_num").await.parse().unwrap();
    assert_eq!(version_number / 10_000, cluster.major_version());
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn names_in(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}
