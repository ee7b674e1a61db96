//! Server-side apply and the bookkeeping of who manages which fields.
//!
//! Every write is recorded in `metadata.managedFields`: an apply owns exactly the fields that it lists, any other write
//! owns what it changed. An apply that would change a field that somebody else manages is a conflict, unless forced;
//! a field that an applier no longer lists goes away when nobody else manages it.

mod compare;
mod fields;
mod managers;
mod merge;
#[cfg(test)]
mod tests;
pub mod tree;

use jiff::Timestamp;
use serde_json::Value;

use fields::FieldSet;
use managers::Managers;
pub use tree::TypeTree;

/// How fields came to be managed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// By server-side apply.
    Apply,
    /// By any other write.
    Update,
}

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// Who writes, how, and when.
#[derive(Clone, Debug)]
pub struct Manager {
    /// Name of the field manager.
    pub name: String,
    /// Sort of the write.
    pub operation: Operation,
    /// Group and version in which the fields are named.
    pub api_version: String,
    /// The subresource written through, if any.
    pub subresource: Option<String>,
    /// The time of the write.
    pub time: Timestamp,
}

/// A field that an apply would change though somebody else manages it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The other manager, as messages name it: `"kubectl-edit" using apps/v1`.
    pub manager: String,
    /// The field, such as `.spec.replicas`.
    pub field: String,
}

/// Applies `applied` for `manager` to `live`; the result carries its managed fields. Fields below `reset` are not
/// recorded, since this endpoint does not write them.
///
/// # Errors
/// The conflicts, when there are any and `force` is not set.
pub fn apply(
    live: Option<&Value>,
    applied: &Value,
    manager: &Manager,
    force: bool,
    tree: &TypeTree,
    reset: &[&[&str]],
) -> Result<Value, Vec<Conflict>> {
    let empty = Value::Object(serde_json::Map::new());
    let before = live.unwrap_or(&empty);
    let mut managers = Managers::of(before);
    let mut wanted = FieldSet::of(applied, tree.root());
    wanted.strip_system_fields();
    for path in reset {
        wanted.remove_below(path);
    }
    let mut merged = merge::merge(before, applied, tree.root());
    managers::clear(&mut merged);
    let mut changed = compare::changed(before, &merged, tree.root());
    changed.strip_system_fields();

    let conflicts = managers.conflicts(manager, &changed.intersection(&wanted));
    if !conflicts.is_empty() && !force {
        return Err(conflicts);
    }
    managers.take_from_others(manager, &changed.intersection(&wanted));
    let former = managers.fields_of(manager);
    let dropped = former.difference(&wanted);
    let others = managers.fields_of_others(manager);
    let gone = dropped.difference(&others);
    merge::remove(&mut merged, &gone, &others.union(&wanted), tree.root());
    managers.forget(&gone);
    managers.set(manager, wanted);
    let same = without_managers(before) == merged;
    managers.write(&mut merged, live, same);
    Ok(merged)
}

/// Records a write other than apply: `new` is what it leaves, `old` what was there. A `managedFields` of `[]` or `[{}]`
/// in `new` clears all records first, as Kubernetes has it.
pub fn record_update(
    old: Option<&Value>,
    new: &mut Value,
    manager: &Manager,
    tree: &TypeTree,
    reset: &[&[&str]],
) {
    let empty = Value::Object(serde_json::Map::new());
    let before = old.unwrap_or(&empty);
    let mut managers = match managers::given(new) {
        managers::Given::Cleared => Managers::default(),
        managers::Given::Kept => Managers::of(before),
        managers::Given::Replaced => Managers::of(new),
    };
    managers::clear(new);
    let mut changed = compare::changed(before, new, tree.root());
    let mut removed = compare::removed(before, new, tree.root());
    changed.strip_system_fields();
    removed.strip_system_fields();
    for path in reset {
        changed.remove_below(path);
        removed.remove_below(path);
    }
    managers.take_from_others(manager, &changed);
    let own = managers.fields_of(manager).union(&changed);
    managers.set(manager, own);
    managers.forget(&removed);
    let same = without_managers(before) == *new;
    managers.write(new, old, same);
}

fn without_managers(object: &Value) -> Value {
    let mut copy = object.clone();
    managers::clear(&mut copy);
    copy
}
