from __future__ import annotations

import json
import math
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest
from server_process import Served, command, served
from tiny import tiny_pair

from ddtree.models import Tokenizer

GREEDY = {"temperature": 0.0, "ignore_eos": True}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return tiny_pair(tmp_path_factory.mktemp("pair"))


@pytest.fixture(scope="module")
def server(folders: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    flags = ["--port", 0, "--target", folders[0], "--drafter", folders[1], "--method", "ddtree", "--budget", 6]
    more = ["--draft-window", 64, "--threads", 1, "--served-model-name", "tiny", "--seed", 7]
    with served(tmp_path_factory.mktemp("log") / "log", command(*flags, *more)) as running:
        yield running


@pytest.fixture(scope="module")
def tokenizer(folders: tuple[Path, Path]) -> Tokenizer:
    return Tokenizer(folders[0])


def generate(server: Served, **body: object) -> dict:
    status, answer = server.request("POST", "/generate", body)
    assert status == 200, answer
    return answer


def test_info_tells_who_answers_and_what_is_in_force(server: Served, folders: tuple[Path, Path]) -> None:
    _, info = server.request("GET", "/server_info")
    expected = {
        "engine": "embedded",
        "nonce": "nonce",
        "pid": server.process.pid,
        "port": server.port,
        "target": str(folders[0].resolve()),
        "drafter": str(folders[1].resolve()),
        "method": "ddtree",
        "budget": 6,
        "topk": 8,
        "draft_window": 64,
        "draft_tokens": None,
        "ngram_max": None,
        "shadow": False,
        "device": "cpu",
        "dtype": "float32",
        "threads": 1,
        "max_running_requests": 8,
        "context_length": 4096,
        "served_model_name": "tiny",
        "seed": 7,
        "block_size": 8,
    }
    assert {key: info[key] for key in expected} == expected
    assert info["started_unix"] > 0
    assert info["version"]


def test_it_listens_on_this_host_only(server: Served) -> None:
    assert server.request("GET", "/server_info")[1]["host"] == "127.0.0.1"
    with socket.socket() as elsewhere, pytest.raises(ConnectionRefusedError):
        elsewhere.connect(("127.0.0.2", server.port))


def test_health_generates_a_token_on_request_only(server: Served) -> None:
    before = server.metric("ddtree_generated_tokens_total")
    assert server.request("GET", "/health")[0] == 200
    assert server.metric("ddtree_generated_tokens_total") == before
    status, answer = server.request("GET", "/health_generate")
    assert (status, len(answer["output_ids"])) == (200, 1)
    assert server.metric("ddtree_generated_tokens_total") == before + 1


def test_stream_is_cumulative_and_ends_as_the_whole_answer(server: Served, tokenizer: Tokenizer) -> None:
    body = {"input_ids": tokenizer.encode("some words"), "sampling_params": {**GREEDY, "max_new_tokens": 30}}
    events = server.events("/generate", {**body, "stream": True})
    for before, after in pairwise(events):
        assert after["output_ids"][: len(before["output_ids"])] == before["output_ids"]
        assert after["text"].startswith(before["text"])
        assert before["meta_info"]["finish_reason"] is None
    last, whole = events[-1], generate(server, **body)
    assert last["output_ids"] == whole["output_ids"]
    assert last["text"] == whole["text"] == tokenizer.decode(last["output_ids"])
    meta = last["meta_info"]
    assert meta["finish_reason"] == {"type": "length", "length": 30}
    assert (meta["prompt_tokens"], meta["completion_tokens"], meta["cached_tokens"]) == (10, 30, 0)
    histogram = meta["spec_accept_histogram"]
    assert sum(histogram) == meta["spec_verify_ct"]
    assert meta["spec_verified_nodes"] >= meta["spec_verify_ct"]
    drafted = sum(depth * steps for depth, steps in enumerate(histogram))
    # The last step's bonus token may have been one too many.
    assert 0 <= meta["spec_first_tokens"] + meta["spec_verify_ct"] + drafted - 30 <= 1
    assert len({event["meta_info"]["id"] for event in events}) == 1


def test_concurrent_requests_do_not_disturb_each_other(server: Served, tokenizer: Tokenizer) -> None:
    def ask(word: str) -> list[int]:
        params = {**GREEDY, "max_new_tokens": 24}
        return generate(server, input_ids=tokenizer.encode(word), sampling_params=params)["output_ids"]

    words = [f"prompt number {i}" for i in range(12)]
    alone = [ask(word) for word in words]
    with ThreadPoolExecutor(len(words)) as pool:
        assert list(pool.map(ask, words)) == alone


def test_stop_string_ends_the_answer_before_it(server: Served) -> None:
    params = {**GREEDY, "max_new_tokens": 40}
    free = generate(server, text="hello", sampling_params=params)
    stop = free["text"][4:7]
    events = server.events("/generate", {"text": "hello", "sampling_params": {**params, "stop": stop}, "stream": True})
    end = free["text"].index(stop)
    assert events[-1]["text"] == free["text"][:end]
    assert all(free["text"][:end].startswith(event["text"]) for event in events)
    meta = events[-1]["meta_info"]
    assert meta["finish_reason"] == {"type": "stop", "matched": stop}
    assert meta["completion_tokens"] == len(events[-1]["output_ids"]) < 40
    server.wait_for_metric("ddtree_running_requests", 0)


def test_stop_token_ends_the_answer_and_is_not_in_its_text(server: Served, tokenizer: Tokenizer) -> None:
    params = {"temperature": 0.0, "max_new_tokens": 40}
    free = generate(server, text="hello", sampling_params={**params, "ignore_eos": True})["output_ids"]
    token = free[5]
    cut = generate(server, text="hello", sampling_params={**params, "stop_token_ids": [token]})
    assert cut["output_ids"] == free[: free.index(token) + 1]
    assert cut["text"] == tokenizer.decode(free[: free.index(token)])
    assert cut["meta_info"]["finish_reason"] == {"type": "stop", "matched": token}


@pytest.mark.parametrize("start", [0, 1, 4, -1])
@pytest.mark.parametrize("new", [0, 1])
def test_scores_have_one_entry_per_position_and_agree_with_greedy_choice(
    server: Served, tokenizer: Tokenizer, start: int, new: int
) -> None:
    prompt = tokenizer.encode("score me")
    ids = prompt + generate(server, input_ids=prompt, sampling_params={**GREEDY, "max_new_tokens": 6})["output_ids"]
    scoring = {"return_logprob": True, "logprob_start_len": start, "top_logprobs_num": 3}
    scored = generate(server, input_ids=ids, sampling_params={**GREEDY, "max_new_tokens": new}, **scoring)
    rows = scored["meta_info"]["input_top_logprobs"]
    first = start if start >= 0 else len(ids) - 1
    assert len(rows) == len(ids) - first
    assert scored["meta_info"]["completion_tokens"] == len(scored["output_ids"]) == new
    for position, row in enumerate(rows, first):
        if position == 0:
            assert row is None
            continue
        assert [entry[2] for entry in row] == [None] * 3
        values = [entry[0] for entry in row]
        assert values == sorted(values, reverse=True)
        assert sum(map(math.exp, values)) <= 1 + 1e-4
        if position >= len(prompt):
            assert row[0][1] == ids[position]


def test_lost_client_ends_its_request(server: Served) -> None:
    before = server.metric('ddtree_requests_total{finish_reason="disconnect"}')
    body = {"text": "x", "sampling_params": {**GREEDY, "max_new_tokens": 4000}, "stream": True}
    connection = server.open("POST", "/generate", body)
    response = connection.getresponse()
    assert response.read(20)
    assert server.metric("ddtree_running_requests") == 1
    response.close()
    connection.close()
    server.wait_for_metric("ddtree_running_requests", 0)
    assert server.metric('ddtree_requests_total{finish_reason="disconnect"}') == before + 1


def test_lost_client_of_a_whole_answer_ends_its_request(server: Served) -> None:
    before = server.metric('ddtree_requests_total{finish_reason="disconnect"}')
    connection = server.open("POST", "/generate", {"text": "x", "sampling_params": {**GREEDY, "max_new_tokens": 4000}})
    server.wait_for_metric("ddtree_running_requests", 1)
    connection.close()
    server.wait_for_metric("ddtree_running_requests", 0)
    assert server.metric('ddtree_requests_total{finish_reason="disconnect"}') == before + 1


@pytest.mark.parametrize("which", [{"rid": "mine"}, {"abort_all": True}])
def test_abort_finishes_a_request_that_others_started(server: Served, which: dict) -> None:
    body = {"text": "x", "sampling_params": {**GREEDY, "max_new_tokens": 4000}, "stream": True, "rid": "mine"}
    response = server.open("POST", "/generate", body).getresponse()
    assert server.request("POST", "/flush_cache")[0] == 400
    assert server.request("POST", "/generate", {**body, "stream": False})[0] == 400, "the rid is taken"
    assert server.request("POST", "/abort_request", which)[0] == 200
    blocks = response.read().decode().split("\n\n")
    assert blocks[-2] == "data: [DONE]"
    assert json.loads(blocks[-3].removeprefix("data: "))["meta_info"]["finish_reason"] == {"type": "abort"}
    assert server.request("POST", "/flush_cache")[0] == 200


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/generate", b"{", "Invalid JSON"),
        ("/generate", {}, "give either text or input_ids"),
        ("/generate", {"text": "a", "input_ids": [1]}, "give either text or input_ids"),
        ("/generate", {"input_ids": []}, "input_ids: List should have at least 1 item"),
        ("/generate", {"input_ids": [[1]]}, "input_ids.0: Input should be a valid integer"),
        ("/generate", {"input_ids": [10**6]}, "input_ids must lie in 0..319"),
        ("/generate", {"text": "a", "prompt": "b"}, "prompt: is not supported; allowed: text, input_ids"),
        (
            "/generate",
            {"text": "a", "sampling_params": {"top_k": 4}},
            "sampling_params.top_k: is not supported; allowed: max_new",
        ),
        ("/generate", {"text": "a", "sampling_params": {"temperature": -1}}, "sampling_params.temperature: "),
        ("/generate", {"text": "a", "sampling_params": {"top_p": 0}}, "sampling_params.top_p: "),
        ("/generate", {"text": "a", "sampling_params": {"max_new_tokens": 0}}, "max_new_tokens must be at least 1"),
        ("/generate", {"text": "a", "sampling_params": {"stop": ["", "b"]}}, "stop: must not hold an empty string"),
        ("/generate", {"text": "a", "sampling_params": {"max_new_tokens": 4096}}, "exceed context_length 4096"),
        ("/generate", {"text": "a" * 5000}, "exceed context_length 4096"),
        ("/generate", {"text": "a", "return_logprob": True}, "must be 0 or 1"),
        ("/v1/completions", {}, "prompt: Field required"),
        ("/v1/completions", {"prompt": "a", "n": 2}, "n: "),
        ("/v1/chat/completions", {"messages": []}, "messages: List should have at least 1 item"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "tools": [{}]}, "tools: "),
        ("/abort_request", {}, "give either rid or abort_all"),
    ],
)
def test_bad_input_is_a_400_with_one_sentence(server: Served, path: str, body: object, message: str) -> None:
    status, answer = server.request("POST", path, body)
    assert status == 400
    assert message in answer["error"]["message"]
    assert "\n" not in answer["error"]["message"]
    assert server.request("GET", "/health_generate")[0] == 200


def test_unknown_route_and_wrong_verb_are_json_too(server: Served) -> None:
    status, answer = server.request("GET", "/nothing")
    assert (status, answer["error"]["message"]) == (404, "GET /nothing: Not Found")
    assert server.request("GET", "/generate")[0] == 405


def test_models_names_the_served_one(server: Served) -> None:
    _, answer = server.request("GET", "/v1/models")
    assert [(model["id"], model["max_model_len"]) for model in answer["data"]] == [("tiny", 4096)]


def test_completion_equals_generate_and_counts_usage(server: Served) -> None:
    own = generate(server, text="once", sampling_params={**GREEDY, "max_new_tokens": 12})
    body = {"prompt": "once", "max_tokens": 12, **GREEDY}
    _, whole = server.request("POST", "/v1/completions", body)
    assert whole["object"] == "text_completion"
    assert whole["choices"][0]["text"] == own["text"]
    assert whole["choices"][0]["finish_reason"] == "length"
    assert whole["usage"] == {"prompt_tokens": 4, "completion_tokens": 12, "total_tokens": 16}
    chunks = server.events("/v1/completions", {**body, "stream": True})
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == own["text"]
    assert chunks[-1]["usage"] == whole["usage"]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["length"]


def test_chat_completion_uses_the_template(server: Served, tokenizer: Tokenizer) -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "good "}, {"type": "text", "text": "day"}]}]
    prompt = tokenizer.encode(tokenizer.chat([{"role": "user", "content": "good day"}]))
    own = generate(server, input_ids=prompt, sampling_params={**GREEDY, "max_new_tokens": 12})
    body = {"model": "any", "messages": messages, "max_tokens": 12, **GREEDY}
    _, whole = server.request("POST", "/v1/chat/completions", body)
    assert whole["choices"][0]["message"] == {"role": "assistant", "content": own["text"]}
    assert whole["usage"]["prompt_tokens"] == len(prompt)
    chunks = server.events("/v1/chat/completions", {**body, "stream": True, "stream_options": {"include_usage": True}})
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks[:-1]) == own["text"]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == whole["usage"]


def test_metrics_are_prometheus_text(server: Served) -> None:
    server.request("GET", "/health_generate")
    assert server.request("POST", "/generate", {"input_ids": [10**6]})[0] == 400
    status, text = server.text("GET", "/metrics")
    assert status == 200
    assert server.metric('ddtree_requests_total{finish_reason="refused"}') > 0
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    assert len({line.rsplit(" ", 1)[0] for line in samples}) == len(samples)
    assert all(float(line.rsplit(" ", 1)[1]) >= 0 for line in samples)
    assert server.metric("ddtree_verified_nodes_total") >= server.metric("ddtree_verify_steps_total") > 0
