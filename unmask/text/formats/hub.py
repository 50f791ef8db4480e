"""Data sets of the Hugging Face Hub, streamed, record by record."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, cast

from unmask.text.formats.decompress import require_module
from unmask.text.formats.records import TextRecord, check_column, check_text, format_error
from unmask.text.lines import BlankLines, EncodingErrors


def stream_records(
    name: str,
    column: str,
    encoding_errors: EncodingErrors = "strict",
    blank_lines: BlankLines | None = None,
) -> Iterator[TextRecord]:
    """Stream a data set of the Hub: `owner/name`, `owner/name:config` or `owner/name:config:split`.

    The split is `train` if none is named; of a data set without configs it is `owner/name::split`.
    With `blank_lines`, empty texts are yielded, too.

    Raises:
        ValueError: there is no such config, split or column.
        FileNotFoundError: there is no such data set.
        ConnectionError: the Hub cannot be reached.
        ImportError: datasets is not installed.
    """
    require_module("datasets", "reading hf:")
    source = f"hf:{name}"
    rows, number = _hub_rows(source, column, *split_hub_name(name)), 0
    while True:
        number += 1
        with _hub_errors(source):
            row = next(rows, None)
        if row is None:
            return
        if column not in row:
            check_column(f"{source}:{number}", column, list(row))
        text = check_text(row[column], f"{source}:{number}", column, encoding_errors)
        if text or blank_lines is not None:
            yield number, text


def split_hub_name(name: str) -> tuple[str, str | None, str]:
    """Split `owner/name:config:split` into its parts.

    Raises:
        ValueError: there are more parts, or none.
    """
    found = name.split(":")
    if len(found) > 3 or not found[0]:
        raise ValueError(
            f"hf:{name}: must be hf:owner/name, hf:owner/name:config, hf:owner/name:config:split "
            "or hf:owner/name::split"
        )
    data_set, config, split = (*found, "", "")[:3]
    return data_set, config or None, split or "train"


def _hub_rows(
    source: str, column: str, data_set: str, config: str | None, split: str
) -> Iterator[dict[str, Any]]:
    import datasets

    with _hub_errors(source):
        rows = datasets.load_dataset(data_set, config, split=split, streaming=True)
    if rows.column_names is not None:
        check_column(source, column, rows.column_names)
        rows = rows.select_columns([column])
    return iter(rows)


@contextmanager
def _hub_errors(source: str) -> Generator[None, None, None]:
    """Turn what the libraries below raise, of many kinds, into one line of a built-in kind."""
    from datasets.exceptions import DatasetsError
    from huggingface_hub.errors import HfHubHTTPError

    # The library that speaks HTTP has changed twice, and not all errors of the newer are OSErrors.
    network = cast(tuple[type[Exception], ...], (OSError, *HfHubHTTPError.__bases__))
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{source}: {format_error(error)}") from error
    except network as error:
        raise ConnectionError(f"{source}: cannot be reached: {format_error(error)}") from error
    except (ValueError, DatasetsError, RuntimeError) as error:
        raise ValueError(f"{source}: {format_error(error)}") from error
