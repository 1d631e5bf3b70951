"""Compares greedy answers with the baseline's and judges every first difference by the baseline's own scores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from ddtree.bench.records import Audit, Cell, Manifest, Request, Run
from ddtree.cells import BadCell, read_cell
from ddtree.files import write_atomically
from ddtree.plan.keys import cells as plan_cells
from ddtree.plan.schema import Plan
from ddtree.quality.results import Agreement, Comparison, Difference, Divergence, LosslessResult

# A log-probability gap (nats) below this is a tie: the two tokens may swap when sums are taken in another order.
THRESHOLDS = {
    "float32": 1e-3,  # observed differences between row counts are below 1e-4
    "bfloat16": 0.15,  # logits of 16 to 32 have steps of 1/8, and hidden states are rounded alike
}

Key = tuple[int, int, str]  # concurrency, repeat, conversation
Transcript = list[Request]  # one conversation's turns, in order, up to the first that failed


class UnknownType(Exception):
    """A server computes in a data type for which no threshold is stated."""


def compare(cells: Mapping[str, Sequence[Cell]], baseline: str) -> LosslessResult:
    """Every server of `cells` against `baseline`, and every server against itself (A/A).

    Cells must be greedy (temperature 0) and of one model. Answers are matched by workload, concurrency, repeat,
    conversation and turn. A conversation is followed up to its first divergence: what comes later had another input.
    """
    agreements: list[Agreement] = []
    divergences: list[Divergence] = []
    scored = _by_workload(cells.get(baseline, ()))
    for server, theirs in cells.items():
        threshold = max((_threshold(cell) for cell in [*theirs, *cells.get(baseline, ())]), default=0.0)
        mine = _by_workload(theirs)
        comparisons: list[Comparison] = ["repeats", "concurrency"] if server == baseline else ["arm", "repeats"]
        for comparison in comparisons:
            partners = scored if comparison == "arm" else mine
            tallies = [
                _tally(Tally(comparison, server, workload, threshold), partners.get(workload, []), measured, scored)
                for workload, measured in mine.items()
            ]
            tallies = [tally for tally in tallies if tally.expected]
            agreements += [tally.agreement(tally.workload) for tally in tallies]
            if tallies:
                agreements.append(_pooled(tallies).agreement("all"))
            divergences += [divergence for tally in tallies for divergence in tally.divergences]
    return LosslessResult(baseline=baseline, agreements=agreements, divergences=divergences, missing=[])


def compare_plan(plan_file: Path, manifest_files: Sequence[Path], out: Path) -> LosslessResult:
    """Compares the plan's greedy cells of all servers of the baseline's model and writes `out`.

    Cells that the plan asks for and that are failed, unreadable or absent are named in `missing`.
    """
    plan = Plan.model_validate_json(plan_file.read_bytes())
    model = plan.servers[plan.baseline].model
    greedy = {name for name, workload in plan.workloads.items() if workload.temperature == 0}
    found: dict[str, list[Cell]] = {name: [] for name, server in plan.servers.items() if server.model == model}
    missing = {f"{server}/{c.name}": None for server in found for c in plan_cells(plan, server) if c.workload in greedy}
    for file in manifest_files:
        manifest = Manifest.model_validate_json(file.read_bytes())
        for name, status in manifest.cells.items():
            if status.status == "failed" or f"{manifest.server}/{name}" not in missing:
                continue
            try:
                cell = read_cell(file.parents[1] / "cells" / manifest.server / f"{name}.json")
            except BadCell:
                continue
            found[manifest.server].append(cell)
            del missing[f"{manifest.server}/{name}"]
    result = compare(found, plan.baseline).model_copy(update={"missing": list(missing)})
    write_atomically(out, result.model_dump_json(indent=1) + "\n")
    return result


@dataclass
class Tally:
    comparison: Comparison
    server: str
    workload: str
    threshold: float
    identical: int = 0
    after_divergence: int = 0
    unmatched: int = 0
    tokens: int = 0
    divergences: list[Divergence] = field(default_factory=list)

    @property
    def expected(self) -> int:
        return self.identical + self.after_divergence + self.unmatched + len(self.divergences)

    def agreement(self, workload: str) -> Agreement:
        count: dict[Difference, int] = {
            verdict: sum(d.verdict == verdict for d in self.divergences)
            for verdict in ("tie", "overrun", "bug", "unscored")
        }
        return Agreement(
            comparison=self.comparison,
            server=self.server,
            workload=workload,
            compared=self.identical + len(self.divergences),
            identical=self.identical,
            **count,
            after_divergence=self.after_divergence,
            unmatched=self.unmatched,
            tokens=self.tokens,
            largest_gap=max((d.gap for d in self.divergences if d.gap is not None), default=None),
            threshold=self.threshold,
        )


def _pooled(tallies: Sequence[Tally]) -> Tally:
    first = tallies[0]
    pooled = Tally(first.comparison, first.server, "all", first.threshold)
    for tally in tallies:
        pooled.identical += tally.identical
        pooled.after_divergence += tally.after_divergence
        pooled.unmatched += tally.unmatched
        pooled.tokens += tally.tokens
        pooled.divergences += tally.divergences
    return pooled


def _tally(tally: Tally, own: list[Cell], measured: list[Cell], scored: Mapping[str, Sequence[Cell]]) -> Tally:
    """One server's cells of one workload against the cells `own` of it; the baseline's `scored` ones judge."""
    comparison, judges = tally.comparison, scored.get(tally.workload, ())
    reference = {key: (transcript, turns) for key, transcript, turns in _asked(own)}
    for key, transcript, turns in _asked(measured):
        partner = _partner(comparison, key, own)
        if partner is None:
            continue
        original, original_turns = reference.get(partner, ([], 0))
        turns = max(turns, original_turns)
        for turn in range(turns):
            if turn >= len(original) or turn >= len(transcript):
                tally.unmatched += turns - turn
                break
            divergence = _difference(tally, key, original, transcript, turn, judges)
            theirs = transcript[turn]
            if divergence is None:
                tally.identical += 1
                tally.tokens += len(theirs.output_ids)
                continue
            tally.tokens += min(divergence.position + 1, len(theirs.output_ids))
            tally.divergences.append(divergence)
            tally.after_divergence += turns - turn - 1
            break
    return tally


def _partner(comparison: Comparison, key: Key, own: Sequence[Cell]) -> Key | None:
    """What an answer is compared with; None for those that only serve as partners."""
    concurrency, repeat, conversation = key
    if comparison == "repeats":
        return (concurrency, 0, conversation) if repeat > 0 else None
    if comparison == "concurrency":
        lowest = min(cell.concurrency for cell in own)
        return (lowest, repeat, conversation) if concurrency > lowest else None
    return key


def _difference(
    tally: Tally, key: Key, original: Transcript, transcript: Transcript, turn: int, judges: Sequence[Cell]
) -> Divergence | None:
    ours, theirs = original[turn], transcript[turn]
    position = _first_difference(ours.output_ids, theirs.output_ids)
    if position is None and ours.text == theirs.text:
        return None
    place = len(ours.output_ids) if position is None else position
    baseline_token = _at(ours.output_ids, place)
    token = _at(theirs.output_ids, place)
    gap: float | None = None
    at_least = False
    verdict: Difference
    if position is None:
        verdict, detail = "bug", "the same tokens with another text"
    elif baseline_token is None and (ours.finish_reason, theirs.finish_reason) == ("stop", "length"):
        verdict, detail = "overrun", "it goes on past the end-of-text token, up to the limit"
    elif baseline_token is None or token is None:
        verdict, detail = "bug", "one answer ends where the other goes on"
    else:
        top = _scores(judges, original[: turn + 1], place)
        verdict, gap, at_least, detail = _judge(top, baseline_token, token, tally.threshold)
    return Divergence(
        comparison=tally.comparison,
        server=tally.server,
        workload=tally.workload,
        concurrency=key[0],
        repeat=key[1],
        conversation=key[2],
        turn=turn,
        position=place,
        baseline_token=baseline_token,
        token=token,
        gap=gap,
        at_least=at_least,
        verdict=verdict,
        detail=detail,
    )


def _judge(
    top: tuple[int, float, int, float] | None, baseline_token: int, token: int, threshold: float
) -> tuple[Difference, float | None, bool, str]:
    """Verdict, gap, whether the gap is a lower bound, detail."""
    if top is None:
        return "unscored", None, False, "the baseline did not score an answer up to here"
    first, best, second, next_best = top
    gap = abs(best - next_best)
    for candidate, whose in ((token, "the token"), (baseline_token, "the other answer's own token")):
        if candidate not in (first, second):
            return "bug", gap, True, f"{whose} is not among the two best"
    if gap < threshold:
        return "tie", gap, False, ""
    return "bug", gap, False, "the gap is too large for rounding"


def _scores(judges: Sequence[Cell], spoken: Transcript, position: int) -> tuple[int, float, int, float] | None:
    """The two best tokens after `position` tokens of the last answer in `spoken`, from any audit of that very context.

    Audits score a cell's first repeat, so they apply as far as its answers are the same.
    """
    request = spoken[-1]
    said = [r.output_ids for r in spoken[:-1]] + [request.output_ids[:position]]
    for cell in judges:
        audit = _audit(cell.audits, request)
        if audit is None or position >= len(audit.top):
            continue
        scored = next((t for name, t in _conversations(cell.runs[0]) if name == request.conversation), [])
        ids = [r.output_ids for r in scored[: len(spoken)]]
        if len(ids) == len(spoken) and [*ids[:-1], ids[-1][:position]] == said:
            return audit.top[position]
    return None


def _audit(audits: Iterable[Audit], request: Request) -> Audit | None:
    return next((a for a in audits if (a.conversation, a.turn) == (request.conversation, request.turn)), None)


def _first_difference(a: Sequence[int], b: Sequence[int]) -> int | None:
    if list(a) == list(b):
        return None
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _at(ids: Sequence[int], position: int) -> int | None:
    return ids[position] if position < len(ids) else None


def _threshold(cell: Cell) -> float:
    dtype = str(cell.effective.get("dtype", "float32"))
    if dtype not in THRESHOLDS:
        raise UnknownType(f"{cell.server}: no tie threshold for dtype {dtype}; allowed: {', '.join(THRESHOLDS)}")
    return THRESHOLDS[dtype]


def _by_workload(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    ordered = sorted(cells, key=lambda cell: (cell.workload, cell.concurrency))
    return {workload: list(group) for workload, group in groupby(ordered, key=lambda cell: cell.workload)}


def _conversations(run: Run) -> Iterator[tuple[str, Transcript]]:
    """Each conversation's turns up to the first failed or missing one."""
    by_conversation: dict[str, dict[int, Request]] = {}
    for request in run.requests:
        by_conversation.setdefault(request.conversation, {})[request.turn] = request
    for name, turns in by_conversation.items():
        transcript: Transcript = []
        while (following := turns.get(len(transcript))) is not None and following.failure is None:
            transcript.append(following)
        yield name, transcript


def _asked(cells: Sequence[Cell]) -> Iterator[tuple[Key, Transcript, int]]:
    """Key, transcript and number of turns that were sent of every conversation."""
    for cell in cells:
        for run in cell.runs:
            for name, transcript in _conversations(run):
                turns = 1 + max(r.turn for r in run.requests if r.conversation == name)
                yield (cell.concurrency, run.repeat, name), transcript, turns
