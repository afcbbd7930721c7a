"""Finding kinds of one table."""

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
