"""One session: start a server once, measure each of its missing cells, write every result as soon as it exists.

Cells are no outputs of the Snakemake job, so nothing ever deletes them; the job's only output is the manifest, which
tells for each cell of the server that it is there, or why it is not.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from ddtree import provenance
from ddtree.bench.client import CellTimeout, measure, warm_up
from ddtree.bench.records import Audit, Cell, CellStatus, Manifest, PromptSet, Reason, Run, Start
from ddtree.bench.scoring import ScoreFailed, score
from ddtree.cells import BadCell, read_cell, write_cell
from ddtree.files import sha256
from ddtree.plan.keys import CellId
from ddtree.plan.layout import Layout
from ddtree.plan.specs import SessionSpec
from ddtree.plan.state import Inputs
from ddtree.progress import Progress
from ddtree.servers import RunningServer, ServerFailed, start
from ddtree.summary import describe
from ddtree.workloads import read

# A second try cannot help: the same start fails in the same way.
FINAL = frozenset({"out_of_memory", "bad_flag", "missing_model", "import_error", "effective_differs"})

log = logging.getLogger(__name__)


class CellFailed(Exception):
    """A cell has no result; `reason` says why."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(f"{reason.category}: {reason.detail}")
        self.reason = reason


@dataclass
class Session:
    """State of one session. `say` shows a line to the person who waits."""

    spec: SessionSpec
    layout: Layout
    inputs: Inputs
    origin: dict[str, object]  # provenance of the whole session
    starts: list[Start] = field(default_factory=list)
    server: RunningServer | None = None

    def say(self, text: str) -> None:
        print(text, flush=True)
        log.info(text)

    @property
    def _owner(self) -> str:
        """What the leases of this session's servers say."""
        return f"{self.spec.plan}/{self.spec.name}"

    def stop(self) -> None:
        if self.server:
            self.server.stop()
            self.server = None

    def ensure(self) -> RunningServer:
        """The server, alive and verified to be ours; started if need be. Raises ServerFailed."""
        if self.server and self.server.alive():
            return self.server
        self.stop()
        while True:
            try:
                self.server = self._start()
                return self.server
            except ServerFailed as failed:
                reason = failed.reason
                failures = sum(not start.ready for start in self.starts)
                self.say(f"{self.spec.name}: start failed ({failures} of {self.spec.max_failed_starts}): {failed}")
                if reason.category in FINAL or failures >= self.spec.max_failed_starts:
                    raise

    def _start(self) -> RunningServer:
        spec, began = self.spec, time.monotonic()
        stamp = time.strftime("%Y%m%dT%H%M%S")
        # A name of its own for every start: an earlier log is evidence.
        path = self.layout.server_logs() / f"{spec.name}-{stamp}-{len(self.starts) + 1}.log"
        python = self.layout.python(spec.server.env, spec.server.python).absolute()
        log.info("starting %s, log %s", spec.name, path)
        try:
            server = start(spec.name, spec.server, self.inputs.files, python, path, spec.ports, self._owner)
        except ServerFailed as failed:
            seconds = time.monotonic() - began
            self.starts.append(Start(ready=False, seconds=seconds, log=str(path), reason=failed.reason))
            raise
        seconds = time.monotonic() - began
        self.starts.append(Start(ready=True, seconds=seconds, log=str(path)))
        self.say(f"{spec.name}: ready after {seconds:.1f} s")
        return server

    def run(self, todo: Sequence[CellId], progress: Progress) -> dict[str, Reason]:
        """Measure `todo` in order; returns the reason of each cell that has no result."""
        failed: dict[str, Reason] = {}
        for position, cell in enumerate(todo):
            began = time.monotonic()
            try:
                measured = self._attempts(cell)
                note = describe(measured)
            except CellFailed as failure:
                failed[cell.name] = failure.reason
                note = f"FAILED {failure}"
            except ServerFailed as failure:
                failed |= {missing.name: failure.reason for missing in todo[position:]}
                self.say(f"{cell.server}: no server, {len(todo) - position} cells have no result: {failure}")
                return failed
            seconds = time.monotonic() - began
            count = progress.finished(cell.name, seconds)
            name = f"{cell.server} {cell.workload} c{cell.concurrency}"
            self.say(f"{count} {name}  {note}  {seconds:.1f} s  {progress.left()}")
        return failed

    def _attempts(self, cell: CellId) -> Cell:
        for attempt in range(1, self.spec.cell_attempts + 1):
            server = self.ensure()
            try:
                measured = self._measure(server, cell, attempt)
                write_cell(self.layout.cell(cell.server, cell.name), measured)
                return measured
            except CellFailed as failure:
                last = failure
                log.warning("%s attempt %d: %s", cell.name, attempt, failure)
                if failure.reason.category == "cell_timeout":
                    self.stop()  # it answers and yet hangs: only a new process can be trusted
        raise last

    def _measure(self, server: RunningServer, cell: CellId, attempt: int) -> Cell:
        workload = self.spec.workloads[cell.workload]
        prompts = read(self.inputs.prompts_path(cell.workload))
        before, began_unix, began = provenance.moment(self._owner), time.time(), time.monotonic()
        try:
            runs, audits = asyncio.run(self._client(server, cell, prompts))
        except (TimeoutError, CellTimeout) as late:
            detail = f"not finished within cell_timeout_s = {workload.cell_timeout_s:g}: {late or 'still warming up'}"
            raise CellFailed(Reason(category="cell_timeout", detail=detail, log_tail=server.last_words())) from None
        except ScoreFailed as unscored:
            reason = Reason(category="other", detail=f"answers could not be scored: {unscored}")
            raise CellFailed(reason if server.alive() else server.death()) from None
        if not server.alive():
            raise CellFailed(server.death())
        if refusal := _too_many_failures(runs, workload.max_failure_rate):
            raise CellFailed(refusal.model_copy(update={"log_tail": server.last_words()}))
        return Cell(
            key=self.inputs.key(cell),
            depends_on=self.inputs.depends_on(cell),
            server=cell.server,
            workload=cell.workload,
            concurrency=cell.concurrency,
            role=workload.role,
            started_unix=began_unix,
            seconds=time.monotonic() - began,
            attempt=attempt,
            effective=server.info,
            provenance={
                **self.origin,
                "server_log": str(server.log),
                "start_s": self.starts[-1].seconds,
                "server_gpus": ",".join(server.gpus),
                "exclusive": bool(self.spec.server.exclusive),
                "before": before,
                "after": provenance.moment(self._owner),
            },
            runs=runs,
            audits=audits,
        )

    async def _client(self, server: RunningServer, cell: CellId, prompts: PromptSet) -> tuple[list[Run], list[Audit]]:
        workload, clock = self.spec.workloads[cell.workload], asyncio.get_running_loop().time
        deadline = clock() + workload.cell_timeout_s
        if workload.role == "load":  # what is judged by its answers alone needs no warm caches
            async with asyncio.timeout_at(deadline):
                await warm_up(server.url, prompts, workload, cell.concurrency)
        # A server on GPUs leaves cores to its neighbours, which provenance names.
        watched = None if self.spec.server.gpus else server.pid
        runs = [
            await measure(server.url, prompts, workload, cell.concurrency, repeat, deadline - clock(), watched)
            for repeat in range(workload.repeats or 1)
        ]
        return runs, await score(server.url, runs[0], prompts) if self.spec.audited(cell.workload) else []


def _too_many_failures(runs: Sequence[Run], limit: float) -> Reason | None:
    """A reason when more than the share `limit` of the requests failed: such a cell must not look fast."""
    requests = [request for run in runs for request in run.requests]
    failures = [request.failure for request in requests if request.failure]
    if not requests:
        return Reason(category="other", detail="no request was sent")
    if len(failures) / len(requests) <= limit:
        return None
    kinds = ", ".join(sorted({failure.type for failure in failures}))
    example = failures[0].detail or failures[0].type
    share = f"{len(failures)} of {len(requests)} requests failed (max_failure_rate {limit:g})"
    return Reason(category="too_many_failures", detail=f"{share}: {kinds}; e.g. {example}")


def missing(session: Session) -> list[CellId]:
    """The session's cells without a sound result, in measuring order. A refused file is named in the log."""
    todo = []
    for cell in session.spec.cell_ids():
        path = session.layout.cell(cell.server, cell.name)
        try:
            if read_cell(path).key == session.inputs.key(cell):
                continue
            log.info("%s: measured under another configuration, measuring it again", path)
        except BadCell as bad:
            log.log(logging.WARNING if path.exists() else logging.INFO, "%s", bad)
        todo.append(cell)
    return todo


def manifest(session: Session, failed: dict[str, Reason], started_unix: float) -> Manifest:
    """The truth about every cell of the session, read back from the files."""
    statuses = {}
    for cell in session.spec.cell_ids():
        key = session.inputs.key(cell)
        if cell.name in failed:
            statuses[cell.name] = CellStatus(status="failed", key=key, reason=failed[cell.name])
        else:
            path = session.layout.cell(cell.server, cell.name)
            statuses[cell.name] = CellStatus(status="ok", key=key, sha256=sha256(path))
    return Manifest(
        server=session.spec.name,
        started_unix=started_unix,
        finished_unix=time.time(),
        starts=session.starts,
        cells=statuses,
    )
