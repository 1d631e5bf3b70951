"""Secrets by name and by form: what is recognised, and every way from a server into a file."""

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from ddtree.bench.reply import shown
from ddtree.plan.schema import Server
from ddtree.redaction import REDACTED, RedactingFormatter, is_secret, redact, redact_settings, without_secrets
from ddtree.servers import failures, launch

SECRET_NAMES = [
    "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "GITHUB_TOKEN", "WANDB_API_KEY", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY",
    "PGPASSWORD", "DB_PASSWD", "CLIENT_SECRET", "SSH_PASSPHRASE", "GOOGLE_APPLICATION_CREDENTIALS", "api-key",
]  # fmt: skip
PLAIN_NAMES = [
    "PATH", "TOKENIZERS_PARALLELISM", "SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION", "HF_TOKEN_PATH", "max_new_tokens",
    "pad_token", "eos_token", "tokenizer_path", "nonce", "SSH_AUTH_SOCK", "sampling_key",
]  # fmt: skip
FORMS = [
    "hf_abcdefghijklmnopqrstuvwxyz", "ghp_0123456789abcdefghijABCDEFGHIJ", "glpat-abcdefghij0123456789",
    "sk-proj-abcdefghij0123456789", "nvapi-abcdefghij0123456789", "AKIAABCDEFGHIJKLMNOP", "xoxb-0123456789-abc",
]  # fmt: skip


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_a_secret_is_known_by_its_name(name: str):
    assert is_secret(name)
    assert is_secret(name.lower())


@pytest.mark.parametrize("name", PLAIN_NAMES)
def test_other_names_are_left_alone(name: str):
    assert not is_secret(name)


@pytest.mark.parametrize("token", FORMS)
def test_a_token_is_known_by_its_form(token: str):
    assert redact(f"cannot log in with {token}: denied") == f"cannot log in with {REDACTED}: denied"


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("Authorization: Bearer abc.def-ghi", f"Authorization: Bearer {REDACTED}"),
        ('{"authorization": "Basic Zm9vOmJhcg=="}', f'{{"authorization": "Basic {REDACTED}"}}'),
        ("curl -H 'bearer s3cret'", f"curl -H 'bearer {REDACTED}'"),
        ("index https://me:pw@host.org/simple failed", f"index https://{REDACTED}@host.org/simple failed"),
    ],
)
def test_credentials_in_headers_and_addresses_are_cut_out(said: str, kept: str):
    assert redact(said) == kept


@pytest.mark.parametrize(
    "text",
    [
        "GET http://127.0.0.1:18500/health",
        "user@host.org",
        "a task-force of hf_users",
        "sk-learn",
    ],
)
def test_ordinary_text_stays(text: str):
    assert redact(text) == text


@given(st.text(), st.text())
def test_a_secret_variable_s_value_never_remains(before: str, after: str):
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("MY_TOKEN", "planted-value")
        assert "planted-value" not in redact(f"{before}planted-value{after}")


def test_settings_are_searched_to_the_bottom(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_TOKEN", "planted-value")
    told = {"api_key": "x", "ssl_password": None, "args": [{"hub_token": "y", "url": "http://a:b@c"}, "planted-value"]}
    assert redact_settings(told | {"port": 1, "eos_token": "</s>"}) == {
        "api_key": REDACTED,
        "ssl_password": None,
        "args": [{"hub_token": REDACTED, "url": f"http://{REDACTED}@c"}, REDACTED],
        "port": 1,
        "eos_token": "</s>",
    }


def test_a_server_s_environment_has_no_secrets(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_TOKEN", "planted-value")
    monkeypatch.setenv("HF_HOME", "/models")
    given = launch.environment("n", (), {"NCCL_DEBUG": "INFO"})
    assert "HF_TOKEN" not in given
    assert given.items() >= {"HF_HOME": "/models", "NCCL_DEBUG": "INFO"}.items()
    assert without_secrets({"A_TOKEN": "x", "B": "y"}) == {"B": "y"}


def test_reasons_errors_and_logs_are_redacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_TOKEN", "planted-value")
    reason = failures.classify("loading\nOSError: 401 for planted-value, hf_abcdefghijklmnopqrst\n", "other", "exit 1")
    assert reason.detail == f"OSError: 401 for {REDACTED}, {REDACTED} (exit 1)"
    assert reason.log_tail == ["loading", f"OSError: 401 for {REDACTED}, {REDACTED}"]
    assert shown(b'{"error": "planted-value"}') == f'{{"error": "{REDACTED}"}}'
    try:
        raise ValueError("planted-value")
    except ValueError as error:
        record = logging.LogRecord(
            "n", logging.ERROR, "f", 1, "with %s", ("planted-value",), (type(error), error, None)
        )
    entry = RedactingFormatter().format(record)
    assert entry == f"with {REDACTED}\nValueError: {REDACTED}"


@pytest.mark.parametrize("keys", [{"environment": {"HF_TOKEN": "x"}}, {"extra_args": {"api-key": "x"}}])
def test_a_plan_with_a_secret_is_refused(keys: dict[str, object]):
    with pytest.raises(ValidationError, match=r"(environment: HF_TOKEN|extra_args: api-key) is a secret; plans are"):
        Server.model_validate({"engine": "sglang", "model": "m", "method": "autoregressive", **keys})
