//! The commands with which a person decides something. Each asks the library; a destructive one asks the person first.

use std::{
    io::{BufRead, IsTerminal, Write},
    process::ExitCode,
};

use anyhow::{Context, Result, bail};
use inboxd::{
    InboxSpec,
    clock::Clock,
    maintain::operate::{
        Actor, OperateError, OperateErrorKind, Operator, confirm_clock, confirm_drops, due_drops, forget, hold, holds,
        message, pause, release, restore, resume,
    },
    postgres,
    service::{
        Guarded,
        config::{Config, Database},
    },
};
use sqlx::PgConnection;

use crate::{
    args::{Command, Confirm, Consent, Forget, Hold, Message, Restore},
    commands::{Answer, Answered, BUSY, each, print},
    text,
};

/// A person was to be asked, and could not be or did not agree.
const NOT_AGREED: u8 = 2;

/// What every command here needs.
#[derive(Clone, Copy)]
pub(crate) struct Operating<'a> {
    pub(crate) config: &'a Config,
    pub(crate) clock: &'a Clock,
    pub(crate) json: bool,
}

impl<'a> Operating<'a> {
    pub(crate) fn new(config: &'a Config, clock: &'a Clock, json: bool) -> Result<Self> {
        for database in &config.databases {
            database.connect_options()?;
        }
        Ok(Self { config, clock, json })
    }

    /// Who acts on a database: the account here, as the role there.
    pub(crate) fn actor(self, database: &Database) -> Result<Actor, OperateError> {
        let uid = nix::unistd::getuid();
        let account = nix::unistd::User::from_uid(uid)
            .ok()
            .flatten()
            .map_or_else(|| format!("uid {uid}"), |user| user.name);
        let role = database
            .options
            .as_ref()
            .map_or("unknown", |options| options.get_username());
        Actor::new(format!("{account} as {role}"))
    }

    fn operator(self, actor: &'a Actor) -> Operator<'a> {
        Operator {
            deployment: &self.config.deployment,
            actor,
            clock: self.clock,
            retries: self.config.retries,
        }
    }

    /// The inbox of a name, with its database. A wrong name is told the right ones.
    pub(crate) fn find(self, name: &str) -> Result<(&'a Database, &'a InboxSpec)> {
        let all = || {
            let databases = self.config.databases.iter();
            databases.flat_map(|database| database.inboxes.iter().map(move |spec| (database, spec)))
        };
        if let Some(found) = all().find(|(_, spec)| spec.name == name) {
            return Ok(found);
        }
        let names: Vec<&str> = all().map(|(_, spec)| spec.name.as_str()).collect();
        bail!("there is no inbox {name:?}; there are: {}", names.join(", "))
    }

    /// The only inbox there is, for a command that was given none.
    pub(crate) fn only(self, command: &str) -> Result<&'a str> {
        let mut all = self.config.databases.iter().flat_map(|database| &database.inboxes);
        match (all.next(), all.next()) {
            (Some(only), None) => Ok(&only.name),
            _ => bail!("there are several inboxes; name one: inboxd {command} INBOX"),
        }
    }

    /// Does something to one inbox, and prints what came of it.
    async fn with<T: serde::Serialize>(
        self,
        name: &str,
        act: impl AsyncFnOnce(&mut PgConnection, Operator<'_>, &InboxSpec) -> Result<T, OperateError>,
        words: fn(&T) -> String,
    ) -> Result<ExitCode> {
        let (database, spec) = self.find(name)?;
        let actor = self.actor(database)?;
        let acting = async |connection: &mut PgConnection| act(connection, self.operator(&actor), spec).await;
        match self.session(database, acting).await? {
            Ok(done) => {
                let answer = Answer {
                    database: database.name.clone(),
                    result: Answered::Done(done),
                };
                print(self.json, &answer, |answer| match &answer.result {
                    Answered::Done(done) => words(done),
                    Answered::Failed { .. } => String::new(),
                })?;
                Ok(ExitCode::SUCCESS)
            }
            Err(error) => self.refuse(error),
        }
    }

    /// Does something on a session of its own.
    async fn session<T>(self, database: &Database, doing: impl AsyncFnOnce(&mut PgConnection) -> T) -> Result<T> {
        let guarded = Guarded::new(self.config);
        Ok(guarded.session(self.config, database, doing).await?)
    }

    /// A refusal in one sentence; as JSON too where that is asked for.
    fn refuse(self, error: OperateError) -> Result<ExitCode> {
        if self.json {
            let value = serde_json::json!({
                "error": { "kind": error.kind(), "message": error.message(), "remedy": error.remedy(), "holder": error.holder() }
            });
            print(true, &value, |_| String::new())?;
        }
        let code = match error.kind() {
            OperateErrorKind::Busy => ExitCode::from(BUSY),
            _ => ExitCode::FAILURE,
        };
        eprintln!("inboxd: {}", text::error(&error.into()));
        Ok(code)
    }
}

pub(crate) async fn execute(operating: Operating<'_>, command: Command) -> Result<ExitCode> {
    match command {
        Command::Adopt(options) => crate::adopt::adopt(operating, options).await,
        Command::Release(options) => crate::adopt::release(operating, options).await,
        Command::Hold(options) => on_hold(operating, options).await,
        Command::Restore(options) => take_back(operating, options).await,
        Command::Confirm(Confirm::Clock { consent }) => clock(operating, &consent).await,
        Command::Confirm(Confirm::Drops { inbox, consent }) => drops(operating, inbox, &consent).await,
        Command::Pause(options) => {
            let answers = each(operating.config, async |database, connection| {
                let actor = operating.actor(database)?;
                pause(connection, operating.operator(&actor), &options.reason).await
            })
            .await;
            print(operating.json, &answers, text::operate::pauses)?;
            Ok(answers.exit_code())
        }
        Command::Resume => {
            let answers = each(operating.config, async |database, connection| {
                let actor = operating.actor(database)?;
                resume(connection, operating.operator(&actor)).await
            })
            .await;
            print(operating.json, &answers, text::operate::resumed)?;
            Ok(answers.exit_code())
        }
        Command::Forget(options) => forget_one(operating, options).await,
        Command::Message(Message { inbox, id, consumer }) => {
            let act = async |connection: &mut PgConnection, operator: Operator<'_>, spec: &InboxSpec| {
                message(connection, operator, spec, id, consumer.as_deref()).await
            };
            operating.with(&inbox, act, text::operate::message).await
        }
        other => bail!("{other:?} is no command of this part; please report this"),
    }
}

async fn on_hold(operating: Operating<'_>, options: Hold) -> Result<ExitCode> {
    let Hold {
        inbox,
        day,
        reason,
        release: is_release,
        list,
    } = options;
    if list {
        return list_holds(operating, inbox.as_deref()).await;
    }
    // The parser demands both where nothing is listed.
    let (Some(inbox), Some(day)) = (inbox, day) else {
        bail!("name the inbox and the day")
    };
    if is_release {
        let act = async |connection: &mut PgConnection, operator: Operator<'_>, spec: &InboxSpec| {
            release(connection, operator, spec, day).await
        };
        return operating.with(&inbox, act, text::operate::released).await;
    }
    let reason = reason.unwrap_or_default();
    let act = async |connection: &mut PgConnection, operator: Operator<'_>, spec: &InboxSpec| {
        hold(connection, operator, spec, day, &reason).await
    };
    operating.with(&inbox, act, text::operate::hold).await
}

async fn list_holds(operating: Operating<'_>, inbox: Option<&str>) -> Result<ExitCode> {
    if let Some(inbox) = inbox {
        operating.find(inbox)?;
    }
    let answers = each(operating.config, async |database, connection| {
        let mut held = holds(connection, &operating.config.deployment, &database.inboxes).await?;
        held.retain(|hold| inbox.is_none_or(|inbox| hold.inbox == inbox));
        Ok::<_, OperateError>(Holds { holds: held })
    })
    .await;
    print(operating.json, &answers, text::operate::holds)?;
    Ok(answers.exit_code())
}

/// The days on hold in one database.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Holds {
    pub(crate) holds: Vec<inboxd::maintain::operate::Held>,
}

async fn take_back(operating: Operating<'_>, options: Restore) -> Result<ExitCode> {
    let Restore {
        inbox,
        day,
        reason,
        consent,
    } = options;
    operating.find(&inbox)?;
    let question = format!("Attach the partition of {day} to {inbox} again, and put the day on hold?");
    if let Some(code) = not_agreed(&consent, &question)? {
        return Ok(code);
    }
    let act = async |connection: &mut PgConnection, operator: Operator<'_>, spec: &InboxSpec| {
        restore(connection, operator, spec, day, reason.as_deref()).await
    };
    operating.with(&inbox, act, text::operate::restored).await
}

async fn clock(operating: Operating<'_>, consent: &Consent) -> Result<ExitCode> {
    let mut question = "Trust the clock as it is, so that removal goes on?".to_owned();
    if !consent.yes && std::io::stdin().is_terminal() {
        for database in &operating.config.databases {
            let asking = async |connection: &mut PgConnection| postgres::catalog::server(connection).await;
            let now = operating.session(database, asking).await??.now;
            question = format!("Database {} says that it is {now}.\n{question}", database.name);
        }
    }
    if let Some(code) = not_agreed(consent, &question)? {
        return Ok(code);
    }
    let answers = each(operating.config, async |database, connection| {
        let actor = operating.actor(database)?;
        confirm_clock(connection, operating.operator(&actor), &database.inboxes).await
    })
    .await;
    print(operating.json, &answers, text::operate::confirmed_clock)?;
    Ok(answers.exit_code())
}

async fn drops(operating: Operating<'_>, inbox: Option<String>, consent: &Consent) -> Result<ExitCode> {
    let inbox = match &inbox {
        Some(inbox) => inbox,
        None => operating.only("confirm drops")?,
    };
    let mut expected = None;
    if !consent.yes && std::io::stdin().is_terminal() {
        let (database, spec) = operating.find(inbox)?;
        let actor = operating.actor(database)?;
        let asking =
            async |connection: &mut PgConnection| due_drops(connection, operating.operator(&actor), spec).await;
        let due = match operating.session(database, asking).await? {
            Ok(due) => due,
            Err(error) => return operating.refuse(error),
        };
        if due.is_over_the_cap() {
            expected = Some(due.due.len());
            let question = format!("{}.\nMay the next run remove them all?", text::operate::due(&due));
            if let Some(code) = not_agreed(consent, &question)? {
                return Ok(code);
            }
        }
    } else if let Some(code) = not_agreed(consent, "")? {
        return Ok(code);
    }
    let act = async |connection: &mut PgConnection, operator: Operator<'_>, spec: &InboxSpec| {
        confirm_drops(connection, operator, spec, expected).await
    };
    operating.with(inbox, act, text::operate::confirmed_drops).await
}

async fn forget_one(operating: Operating<'_>, options: Forget) -> Result<ExitCode> {
    let Forget {
        which: Message { inbox, id, consumer },
        reason,
        consent,
    } = options;
    operating.find(&inbox)?;
    let question = format!("Forget message {id} of {inbox}, so that its next delivery is processed again?");
    if let Some(code) = not_agreed(&consent, &question)? {
        return Ok(code);
    }
    let act = async |connection: &mut PgConnection, operator: Operator<'_>, spec: &InboxSpec| {
        forget(connection, operator, spec, id, consumer.as_deref(), &reason).await
    };
    operating.with(&inbox, act, text::operate::forgotten).await
}

/// Asks a person, on the terminal, unless they have said yes already. Some exit code when it is not to be done.
pub(crate) fn not_agreed(consent: &Consent, question: &str) -> Result<Option<ExitCode>> {
    if consent.yes {
        return Ok(None);
    }
    if !std::io::stdin().is_terminal() {
        eprintln!("inboxd: nobody is there to agree to this; add --yes");
        return Ok(Some(ExitCode::from(NOT_AGREED)));
    }
    eprint!("{question} [y/N] ");
    std::io::stderr().flush().context("ask")?;
    let mut answer = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut answer)
        .context("read the answer")?;
    if ["y", "yes"].contains(&answer.trim().to_lowercase().as_str()) {
        return Ok(None);
    }
    eprintln!("inboxd: nothing was done");
    Ok(Some(ExitCode::from(NOT_AGREED)))
}
