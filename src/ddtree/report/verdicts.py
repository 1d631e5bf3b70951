"""Tables of the quality results: coding verdicts and the greedy comparison."""

from __future__ import annotations

import pandas as pd

from ddtree.quality.results import VERDICTS, wilson
from ddtree.report.results import Results

_AGREEMENT = [
    "comparison", "server", "workload", "compared", "identical", "tie", "overrun", "bug", "unscored",
    "after_divergence", "unmatched", "tokens", "largest_gap", "threshold", "differing", "low", "high", "path",
]  # fmt: skip
_DIVERGENCE = [
    "comparison", "server", "workload", "concurrency", "repeat", "conversation", "turn", "position", "baseline_token",
    "token", "gap", "at_least", "verdict", "detail", "path",
]  # fmt: skip


def coding(results: Results) -> pd.DataFrame:
    """One row per server and coding cell: the number of problems with each verdict, the pass rate with its interval."""
    rows = [
        {
            "server": graded.server,
            "workload": graded.workload,
            "concurrency": graded.concurrency,
            "n": graded.rate.n,
            **{v: graded.counts.get(v, 0) for v in VERDICTS},
            "unanswered": graded.unanswered,
            "rate": graded.rate.value,
            "low": graded.rate.low,
            "high": graded.rate.high,
            "sandbox": graded.sandbox,
            "path": path,
        }
        for path, server in results.coding.values()
        for graded in server.results
    ]
    columns = [
        "server",
        "workload",
        "concurrency",
        "n",
        *VERDICTS,
        "unanswered",
        "rate",
        "low",
        "high",
        "sandbox",
        "path",
    ]
    return pd.DataFrame(rows, columns=columns).astype({"rate": "float64"})


def lossless(results: Results) -> pd.DataFrame:
    """One row per comparison (arm, or a control of a server with itself), server and workload (or all). `differing` is
    the share of compared answers that differ, with its interval: an arm's is read beside the controls'."""
    path, found = results.lossless or ("", None)
    rows = []
    for agreement in found.agreements if found else ():
        share = wilson(agreement.compared - agreement.identical, agreement.compared)
        rate = {"differing": share.value, "low": share.low, "high": share.high}
        rows.append({**agreement.model_dump(), **rate, "path": path})
    return pd.DataFrame(rows, columns=_AGREEMENT).astype({"largest_gap": "float64", "differing": "float64"})


def divergences(results: Results) -> pd.DataFrame:
    """One row per first difference between two greedy answers."""
    path, found = results.lossless or ("", None)
    rows = [{**d.model_dump(), "path": path} for d in found.divergences] if found else []
    return pd.DataFrame(rows, columns=_DIVERGENCE).astype(
        {"gap": "float64", "baseline_token": "Int64", "token": "Int64"}
    )
