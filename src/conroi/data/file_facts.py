"""What a data file says about itself, by opening it, and what is in it, by reading all of it."""

from __future__ import annotations

from conroi.data.pylance import file_session, pylance_errors
from conroi.format.naming import DATA_DIR, check_relative_path
from conroi.stores.objects import Objects

BATCH_ROWS = 8192


def rows_in_file(objects: Objects, name: str) -> int:
    """How many rows the data file has, by its own footer; an error if it is not a whole Lance file."""
    with pylance_errors(objects.root):
        return file_session(objects).open_reader(check_relative_path(name)).num_rows()


def rows_read_from_file(objects: Objects, name: str) -> int:
    """How many rows come out when every value of the file is decoded and looked at."""
    rows = 0
    with pylance_errors(objects.root):
        reader = file_session(objects).open_reader(check_relative_path(name))
        for batch in reader.read_all(batch_size=BATCH_ROWS).to_batches():
            batch.validate(full=True)
            rows += batch.num_rows
    return rows


def is_in_data_folder(data_dir: str) -> bool:
    """Whether files of a place are where a table has its data, so that they can be opened by name."""
    return data_dir == DATA_DIR
