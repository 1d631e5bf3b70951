"""Speculation counters from the `meta_info` of a finished request, in the dialects of both engines."""

from __future__ import annotations

from collections.abc import Mapping

from ddtree.bench.records import Speculation


def speculation(meta: Mapping[str, object]) -> Speculation | None:
    """Counters from the last event's meta_info; None for a server that did not speculate. Raises KeyError or ValueError
    (pydantic's is one) when they are incomplete or contradict each other."""
    if meta.get("spec_verify_ct") is None:
        return None
    if "spec_verified_nodes" not in meta and "spec_num_proposed_drafts" in meta:
        return _sglang(meta)
    return Speculation.model_validate(
        {
            "verify_steps": meta["spec_verify_ct"],
            # The prefill gives the first token; everything after it comes from a verify step.
            "first_tokens": meta.get("spec_first_tokens", 1),
            "histogram": meta["spec_accept_histogram"],
            "verified_nodes": meta["spec_verified_nodes"],
            "shadow_histogram": meta.get("spec_shadow_histogram"),
        }
    )


def _sglang(meta: Mapping[str, object]) -> Speculation:
    """SGLang counts whole steps, also the part of the last one that a stop or the token limit cut off, and its
    `spec_accept_length` counts the prefill's token in. Here the cut part is taken out and that token stands apart."""
    # 0.5.16 says both names, later releases only the first.
    names = ("spec_correct_drafts_histogram", "spec_accept_histogram")
    given = next((meta[name] for name in names if name in meta), None)
    if not isinstance(given, list):
        raise KeyError(names[0])
    histogram = [int(steps) for steps in given]
    steps, tokens = _number(meta, "spec_verify_ct"), _number(meta, "completion_tokens")
    if sum(histogram) != steps:
        raise ValueError(f"{names[0]} has {sum(histogram)} steps, spec_verify_ct says {steps}")
    emitted = sum(count * (accepted + 1) for accepted, count in enumerate(histogram))
    # A request that was evicted and prefilled again got one more token from a prefill.
    first = max(1, tokens - emitted)
    if (cut := first + emitted - tokens) > 0:
        _shorten_last(histogram, cut)
    return Speculation(
        verify_steps=steps,
        first_tokens=first,
        histogram=histogram,
        verified_nodes=steps + _number(meta, "spec_num_proposed_drafts"),
        shadow_histogram=_shadow(meta),
    )


def _shadow(meta: Mapping[str, object]) -> list[int] | None:
    """The plugin counts shadow trees where DSPARK counts caps: steps by accepted drafts + 1, undecided ones at 0."""
    given = meta.get("spec_cap_lens_histogram")
    return [int(steps) for steps in given[1:]] if isinstance(given, list) else None


def _shorten_last(histogram: list[int], cut: int) -> None:
    """Take `cut` tokens off the last step, in place. Which step was the last is not told: of those that were long
    enough the longest is taken, which changes neither the number of tokens nor that of steps."""
    long_enough = [accepted for accepted, count in enumerate(histogram) if count and accepted >= cut]
    if not long_enough:
        raise ValueError(f"no step was long enough for the {cut} tokens that were cut off: {histogram}")
    histogram[long_enough[-1]] -= 1
    histogram[long_enough[-1] + 1 - cut] += 1
    while histogram and not histogram[-1]:
        histogram.pop()


def _number(meta: Mapping[str, object], name: str) -> int:
    value = meta[name]
    if not isinstance(value, int):
        raise ValueError(f"{name} is {value!r}, no number")
    return value
