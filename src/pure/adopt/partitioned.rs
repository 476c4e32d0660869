//! A table that is partitioned already: whether an inbox can be made of it as it is, and what must be done before.

use super::Problem;
use crate::pure::{Bounds, Day, TableName};

/// What the catalog shows of such a table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FoundPartitioned {
    /// Why `init` would refuse it, if it would.
    pub(crate) unfit: Option<String>,
    /// The constraint that is its primary key.
    pub(crate) primary_key: Option<String>,
    /// The schema of the pg_partman that looks after it.
    pub(crate) partman: Option<String>,
    /// Its partitions.
    pub(crate) children: Vec<FoundChild>,
}

/// A partition of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FoundChild {
    /// Its name.
    pub(crate) name: String,
    /// Whether it stands in the schema of the table.
    pub(crate) is_beside: bool,
    /// Whether it is an ordinary table, and not partitioned again or foreign.
    pub(crate) is_table: bool,
    /// What it holds.
    pub(crate) bounds: Bounds,
    /// Whether a unique index stands on exactly the key.
    pub(crate) has_key: bool,
}

/// The verdict on a table that is partitioned already.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct PartitionedTable {
    /// The table.
    pub table: TableName,
    /// The days whose partitions become the inbox's as they are.
    pub days: Vec<Day>,
    /// What must be done first, in this order.
    pub problems: Vec<Problem>,
    /// What is worth knowing and keeps nobody.
    pub notes: Vec<String>,
}

/// Decides what becomes of it. This list *is* the policy:
///
/// 1. Only one may make and drop partitions: pg_partman is told to leave it alone.
/// 2. What `init` refuses is refused here, a primary key with the statement that takes it away.
/// 3. A partition whose bounds are exactly one UTC day and whose name is that day's is mapped; where only the name differs, it
///    is to be renamed. Whatever else there is, is refused: nothing of ours would ever remove it.
/// 4. A default partition is refused unless it is to be drained.
/// 5. A day without its key keeps nobody: a run makes it.
pub(crate) fn partitioned(table: &TableName, drain_default: bool, found: &FoundPartitioned) -> PartitionedTable {
    let mut problems = Vec::new();
    let mut notes = Vec::new();
    let mut days = Vec::new();
    if let Some(schema) = &found.partman {
        let (schema, name) = (
            schema.replace('"', "\"\""),
            format!("{}.{}", table.schema(), table.table()),
        );
        problems.push(Problem {
            what: "pg_partman makes and drops its partitions".to_owned(),
            remedy: format!(
                "delete from \"{schema}\".part_config where parent_table = '{}'",
                name.replace('\'', "''")
            ),
        });
    }
    if let Some(unfit) = &found.unfit {
        let remedy = match &found.primary_key {
            Some(key) => format!(
                "give each partition a unique index on exactly message_id, then alter table {} drop constraint \"{}\"",
                table.quoted(),
                key.replace('"', "\"\"")
            ),
            None => "change it in a quiet moment, or let init make a new inbox and move consumers: docs/migration.md"
                .to_owned(),
        };
        problems.push(Problem {
            what: unfit.clone(),
            remedy,
        });
    }
    for child in &found.children {
        match judge(table, drain_default, child) {
            Ok(day) => {
                days.push(day);
                if !child.has_key {
                    notes.push(format!(
                        "{} has no unique index on exactly the key: claims of its day fail until a run has made it",
                        child.name
                    ));
                }
            }
            Err(None) => notes.push(format!(
                "{} is the default partition: runs drain it and drop it",
                child.name
            )),
            Err(Some(problem)) => problems.push(problem),
        }
    }
    days.sort_unstable();
    PartitionedTable {
        table: table.clone(),
        days,
        problems,
        notes,
    }
}

/// Points 3 and 4: the day, or what is to be done; nothing where a run does it.
fn judge(table: &TableName, drain_default: bool, child: &FoundChild) -> Result<Day, Option<Problem>> {
    let name = &child.name;
    let problem = |what: String, remedy: String| Err(Some(Problem { what, remedy }));
    if child.bounds == Bounds::Default {
        return if drain_default {
            Err(None)
        } else {
            problem(
                format!("{name} is a default partition: it prevents every concurrent detach"),
                "drain_default = true in the configuration lets runs drain it and drop it".to_owned(),
            )
        };
    }
    if !child.is_table || !child.is_beside {
        return problem(
            format!("{name} is no ordinary table in the schema of {table}"),
            "detach it when its rows have expired, or make a table of that day of it".to_owned(),
        );
    }
    let Some(day) = child.bounds.day() else {
        return problem(
            format!("the bounds of {name} are not exactly one UTC day, so it would be reported and never removed"),
            "detach it by hand when it has expired; until then the days that it holds get no partition of their own"
                .to_owned(),
        );
    };
    let wanted = table.partition(day);
    if wanted.as_str() != name {
        let quoted = name.replace('"', "\"\"");
        return problem(
            format!("{name} holds {day} and is not called {wanted}, so it would be reported and never removed"),
            format!(
                "in a quiet moment: alter table {}.\"{quoted}\" rename to {}",
                table.schema().quoted(),
                wanted.quoted()
            ),
        );
    }
    Ok(day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn child(name: &str, bounds: &str) -> FoundChild {
        FoundChild {
            name: name.to_owned(),
            is_beside: true,
            is_table: true,
            bounds: Bounds::parse(bounds, crate::pure::Routing::ProcessedAt),
            has_key: true,
        }
    }

    fn found(children: Vec<FoundChild>) -> FoundPartitioned {
        FoundPartitioned {
            unfit: None,
            primary_key: None,
            partman: None,
            children,
        }
    }

    fn verdict(found: &FoundPartitioned) -> PartitionedTable {
        partitioned(&"public.inbox".parse().unwrap(), false, found)
    }

    const ONE_DAY: &str = "FOR VALUES FROM ('2026-12-01 00:00:00+00') TO ('2026-12-02 00:00:00+00')";

    #[test]
    fn a_day_with_its_name_is_mapped() {
        let mut table = found(vec![child("inbox_2026_12_01", ONE_DAY)]);
        let mapped = verdict(&table);
        assert_eq!(
            (mapped.days.len(), mapped.problems.len(), mapped.notes.len()),
            (1, 0, 0)
        );
        table.children[0].has_key = false;
        let noted = verdict(&table);
        assert_eq!((noted.days.len(), noted.problems.len(), noted.notes.len()), (1, 0, 1));
    }

    #[test]
    fn whatever_else_there_is_is_refused_with_its_step() {
        let week = "FOR VALUES FROM ('2026-12-01 00:00:00+00') TO ('2026-12-08 00:00:00+00')";
        let elsewhere = "FOR VALUES FROM ('2026-11-30 23:00:00+00') TO ('2026-12-01 23:00:00+00')";
        for (name, bounds, step) in [
            (
                "inbox_p20261201",
                ONE_DAY,
                r#"alter table "public"."inbox_p20261201" rename to "inbox_2026_12_01""#,
            ),
            ("inbox_2026_12_01", week, "detach it by hand"),
            ("inbox_2026_12_01", elsewhere, "detach it by hand"),
            ("inbox_default", "DEFAULT", "drain_default"),
        ] {
            let refused = verdict(&found(vec![child(name, bounds)]));
            assert!(refused.days.is_empty(), "{name}");
            assert!(refused.problems[0].remedy.contains(step), "{refused:?}");
        }
        let mut sub = child("inbox_2026_12_01", ONE_DAY);
        sub.is_table = false;
        assert_eq!(verdict(&found(vec![sub])).problems.len(), 1);
        let drained = partitioned(
            &"public.inbox".parse().unwrap(),
            true,
            &found(vec![child("inbox_default", "DEFAULT")]),
        );
        assert_eq!((drained.problems.len(), drained.notes.len()), (0, 1));
    }

    #[test]
    fn pg_partman_and_a_primary_key_come_first() {
        let refused = verdict(&FoundPartitioned {
            unfit: Some("its primary key holds processed_at".to_owned()),
            primary_key: Some("inbox_pkey".to_owned()),
            partman: Some("partman".to_owned()),
            children: Vec::new(),
        });
        let steps: Vec<&str> = refused.problems.iter().map(|problem| problem.remedy.as_str()).collect();
        assert!(steps[0].ends_with("where parent_table = 'public.inbox'"), "{steps:?}");
        assert!(steps[1].ends_with(r#"drop constraint "inbox_pkey""#), "{steps:?}");
    }
}
