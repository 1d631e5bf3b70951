"""The JSON bodies that the server takes. What it cannot do is refused by name, never ignored."""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

Tokens = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
Stops = str | list[str] | None
B = TypeVar("B", bound=BaseModel)


class BadRequest(ValueError):
    """The client's mistake, told in one sentence."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class SamplingParams(_Strict):
    max_new_tokens: int = Field(default=128, ge=0)
    temperature: float = Field(default=1.0, ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    ignore_eos: bool = False
    stop: Stops = None
    stop_token_ids: list[int] | None = None


class Generate(_Strict):
    """SGLang's /generate. With `return_logprob` the input is scored and at most one token generated."""

    text: str | None = None
    input_ids: Tokens | None = None
    sampling_params: SamplingParams = SamplingParams()
    stream: bool = False
    rid: str | None = None
    return_logprob: bool = False
    logprob_start_len: int = Field(default=-1, ge=-1)  # -1: from the last input token on
    top_logprobs_num: int = Field(default=0, ge=0)
    # Sent by SGLang's own benchmark in every request; only what they say by default can be done.
    lora_path: None = None
    return_routed_experts: Literal[False] = False

    @model_validator(mode="after")
    def _consistent(self) -> Generate:
        if (self.text is None) == (self.input_ids is None):
            raise ValueError("give either text or input_ids")
        if self.return_logprob and self.sampling_params.max_new_tokens > 1:
            raise ValueError("return_logprob scores the input only: sampling_params.max_new_tokens must be 0 or 1")
        if self.return_logprob and self.top_logprobs_num < 1:
            raise ValueError("return_logprob needs top_logprobs_num of at least 1")
        if self.return_logprob and self.stream:
            raise ValueError("return_logprob cannot be streamed: stream must be false")
        if not self.return_logprob and self.sampling_params.max_new_tokens == 0:
            raise ValueError("sampling_params.max_new_tokens must be at least 1")
        return self


class Abort(_Strict):
    rid: str | None = None
    abort_all: bool = False

    @model_validator(mode="after")
    def _one(self) -> Abort:
        if (self.rid is None) == (not self.abort_all):
            raise ValueError("give either rid or abort_all: true")
        return self


class StreamOptions(BaseModel):
    include_usage: bool = False


class OpenAI(BaseModel):
    """What both OpenAI bodies share. Unknown fields are let through, as clients send many; the ones that would change
    the answer and are not supported allow their neutral value only."""

    max_tokens: int | None = Field(default=None, ge=1)
    temperature: float = Field(default=1.0, ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    ignore_eos: bool = False
    stop: Stops = None
    stop_token_ids: list[int] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: Literal[1, None] = None
    best_of: Literal[1, None] = None
    echo: Literal[False, None] = None
    logprobs: Literal[False, None] = None
    suffix: Literal["", None] = None
    presence_penalty: Literal[0, None] = None
    frequency_penalty: Literal[0, None] = None
    logit_bias: Annotated[dict[str, float], Field(max_length=0)] | None = None
    tools: Annotated[list[object], Field(max_length=0)] | None = None


class Completion(OpenAI):
    prompt: str | Tokens


class TextPart(BaseModel):
    type: Literal["text"]
    text: str


class ChatMessage(BaseModel):
    role: str
    content: str | list[TextPart]

    @property
    def text(self) -> str:
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class ChatCompletion(OpenAI):
    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_completion_tokens: int | None = Field(default=None, ge=1)


async def parse(request: web.Request, model: type[B]) -> B:
    """The request's body as `model`; BadRequest names the key and what is allowed."""
    try:
        return model.model_validate_json(await request.read())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        says = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            within = SamplingParams if first["loc"][0] == "sampling_params" else model
            says = f"is not supported; allowed: {', '.join(within.model_fields)}"
        raise BadRequest(f"{where}: {says}" if where else says) from None


def stops(given: Stops) -> tuple[str, ...]:
    """Stop strings as a tuple; an empty one would match everywhere."""
    listed = (given,) if isinstance(given, str) else tuple(given or ())
    if "" in listed:
        raise BadRequest("stop: must not hold an empty string")
    return listed
