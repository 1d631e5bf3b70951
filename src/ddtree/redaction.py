"""Keeps passwords and access tokens out of servers, logs and result files, which are meant to be published."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping

REDACTED = "[redacted]"
SHORTEST = 8  # characters of an environment value that is looked for in text: shorter ones occur by chance
# Tokens of a vocabulary (pad_token) are no secrets.
_NAME = re.compile(
    r"((?<!bos_|eos_|pad_|unk_)(?<!mask_|stop_)token|secret|passw(or)?d|passphrase|credentials?|api_?key"
    r"|(access|private|secret)_?key)$",
    re.I,
)
# Access tokens that tell what they are: Hugging Face, GitHub, GitLab, OpenAI and its like, NVIDIA, AWS, Slack, PyPI.
_TOKEN = re.compile(
    r"\b(hf_[A-Za-z0-9]{16,}|gh[oprsu]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|sk-[\w-]{20,}"
    r"|nvapi-[\w-]{20,}|AKIA[A-Z0-9]{16}|xox[abprs]-[\w-]{10,}|pypi-[\w-]{20,})"
)
_HEADER = re.compile(
    r"\b(authorization[\"']?\s*[:=]\s*[\"']?(?:(?:bearer|basic|token)\s+)?|bearer\s+)[^\s\"',;]+", re.I
)
_USERINFO = re.compile(r"(?<=://)[^\s/@\"']+@")


def is_secret(name: str) -> bool:
    """Whether a variable, flag or key of this name holds a secret, such as HF_TOKEN or api-key."""
    return _NAME.search(name.replace("-", "_")) is not None


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of `environment` that a program may see whose output is kept."""
    return {name: value for name, value in environment.items() if not is_secret(name)}


def redact(text: str) -> str:
    """`text` without this process's secret variables, known forms of tokens, credentials in headers and in URLs."""
    for name, value in os.environ.items():
        if is_secret(name) and len(value) >= SHORTEST:
            text = text.replace(value, REDACTED)
    text = _HEADER.sub(lambda found: found[1] + REDACTED, _TOKEN.sub(REDACTED, text))
    return _USERINFO.sub(f"{REDACTED}@", text)


def reason(error: Exception) -> str:
    """The first line of what `error` says, redacted."""
    return redact((str(error).strip() or type(error).__name__).splitlines()[0])


def redact_settings(settings: Mapping[str, object]) -> dict[str, object]:
    """JSON-like `settings` with every text redacted, and with what stands under the name of a secret replaced."""
    return {key: REDACTED if value and is_secret(key) else _redact_any(value) for key, value in settings.items()}


def _redact_any(value: object) -> object:
    match value:
        case str():
            return redact(value)
        case dict():
            return redact_settings(value)
        case list():
            return [_redact_any(each) for each in value]
        case _:
            return value


class RedactingFormatter(logging.Formatter):
    """For log files: redacts the whole entry, its traceback included."""

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))
