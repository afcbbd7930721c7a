"""Error mapping of obstore, without its texts: they may quote a signed URL, a key id or a header."""

from __future__ import annotations

import re

from obstore import exceptions

from conroi.errors import ConroiError, InvalidInputError, NotFoundError, StoreError, StoreUnavailable
from conroi.stores.local_names import COMMIT_LOCK_HINT
from conroi.stores.objects import NameTaken

# Everything obstore raises: its own tree, and the built-in FileNotFoundError, TimeoutError, ValueError and the like.
OBSTORE_ERRORS = (exceptions.BaseError, OSError, ValueError, NotImplementedError)
CONDITIONAL = ("create", "copy to")
"""The verbs of requests that may be refused because the name is taken."""
_STATUS = re.compile(r"\bstatus:? (?:code )?(\d{3})\b")
_PLAIN_HTTP = re.compile(r"\bsource: BadScheme\b")
_CODE = re.compile(r"<Code>([A-Za-z]{1,60})</Code>")


def translate(error: Exception, verb: str, path: str, root: str, source: str | None = None) -> Exception:
    """The typed error for an obstore error, without its text."""
    if isinstance(error, FileNotFoundError):
        return _not_found(verb, path, root, source)
    if verb in CONDITIONAL and not is_in_progress(error) and _is_condition_failure(error):
        return NameTaken(path)
    return _refusal(error, f"Could not {verb} {path}", root)


def is_in_progress(error: Exception) -> bool:
    """Whether the server refused because another conditional request for the same name is in progress: retry.

    S3 returns 409 ConditionalRequestConflict or OperationAborted. That does not mean that the name is taken, though
    obstore reports "already exists". Azure returns 409 also for a taken name, with a code that says so.
    """
    if status_of(error) != 409:
        return False
    code = _CODE.search(str(error))
    return code is None or "AlreadyExists" not in code.group(1)


def _is_condition_failure(error: Exception) -> bool:
    return isinstance(error, (exceptions.AlreadyExistsError, exceptions.PreconditionError))


def is_past_the_end(error: Exception) -> bool:
    """Whether bytes were asked for that the file does not have."""
    return status_of(error) == 416


def is_range_ignored(error: Exception) -> bool:
    """Whether the server sent the whole file instead of the asked bytes: some do, some only if it is empty."""
    return "NotPartial" in str(error)


def status_of(error: Exception) -> int | None:
    """The HTTP status of the response, if there was one."""
    found = _STATUS.search(str(error))
    return int(found.group(1)) if found else None


def _not_found(verb: str, path: str, root: str, source: str | None) -> NotFoundError | StoreError:
    if verb in ("write", "create", "list"):  # these need no file, so it is the bucket that is missing
        message = f"Could not {verb} {path}: there is no such bucket or container"
        return StoreError(message, table=root, hint="create it first")
    return NotFoundError(f"There is no file {source or path}", table=root)


def _refusal(error: Exception, asked: str, root: str) -> ConroiError:
    if isinstance(error, exceptions.PermissionDeniedError):
        return StoreError(f"{asked}: permission denied", table=root, hint="check what these credentials may do")
    if isinstance(error, exceptions.UnauthenticatedError):
        return StoreError(f"{asked}: the credentials were not accepted", table=root, hint="check storage_options")
    if isinstance(error, (exceptions.NotSupportedError, NotImplementedError)):
        return StoreError(f"{asked}: this storage cannot do that", table=root, hint=COMMIT_LOCK_HINT)
    if isinstance(error, exceptions.InvalidPathError):
        return InvalidInputError(f"{asked}: not a name that this storage can have", table=root, hint="choose another")
    return _by_status(error, asked, root)


def _by_status(error: Exception, asked: str, root: str) -> ConroiError:
    status = status_of(error)
    if status is None and _PLAIN_HTTP.search(str(error)):
        # Nothing was sent: obstore refused to.
        return StoreError(
            f"{asked}: plain http:// is not allowed",
            table=root,
            hint="give storage_options={'allow_http': 'true'} or set AWS_ALLOW_HTTP=true, or use https://",
        )
    if status is None:
        reason = "no answer from the server"
    else:
        code = _CODE.search(str(error))
        reason = f"the server answered {status}" + (f" {code.group(1)}" if code else "")
    if status == 501:
        return StoreError(f"{asked}: {reason}", table=root, hint=COMMIT_LOCK_HINT)
    # 409: another request is in progress. 412 to a request without a condition is no answer to what was asked.
    if status is None or status >= 500 or status in (408, 409, 412, 429):
        return StoreUnavailable(f"{asked}: {reason}", table=root, hint="it may pass; check endpoint and network")
    return StoreError(f"{asked}: {reason}", table=root, hint="check the bucket, the region and storage_options")
