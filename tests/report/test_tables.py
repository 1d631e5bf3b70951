from pathlib import Path

import pandas as pd
import pytest
import synthetic
from synthetic import ARMS

from ddtree.bench.records import Manifest
from ddtree.cells import read_cell, write_cell
from ddtree.report import tables
from ddtree.report.results import BadResult

BASE = ARMS["autoregressive"]
OTHERS = [name for name in ARMS if name != "autoregressive"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of a tree without jitter: every number is known."""
    root = tmp_path_factory.mktemp("exact")
    return synthetic.tables(root, synthetic.write(root))


@pytest.fixture(scope="module")
def exact(folder: Path) -> dict[str, pd.DataFrame]:
    return tables.read(folder)


def rows(frame: pd.DataFrame, **where: object) -> pd.DataFrame:
    for column, value in where.items():
        frame = frame[frame[column] == value]
    return frame


@pytest.mark.parametrize("server", OTHERS)
def test_decoding_speedup_is_the_true_one_in_every_workload(exact: dict[str, pd.DataFrame], server: str) -> None:
    found = rows(exact["speedups"], server=server, against="baseline", metric="decode")
    assert len(found) > 5
    assert list(found["ratio"]) == pytest.approx([ARMS[server].speedup(BASE)] * len(found))


def test_end_to_end_speedup_counts_the_prefill(exact: dict[str, pd.DataFrame]) -> None:
    found = rows(exact["speedups"], server="ddtree-b7", against="baseline", metric="e2e", concurrency=1, category="all")
    prefill = 0.2 * 1536
    truth = (prefill + 48 * 40) / (prefill + 12 * 50)
    assert rows(found, workload="very-long")["ratio"].item() == pytest.approx(truth)


def test_pairs_are_conversations_turns_and_repeats_that_both_sides_answered(exact: dict[str, pd.DataFrame]) -> None:
    where = {"against": "baseline", "metric": "e2e", "concurrency": 1, "category": "all", "workload": "short"}
    answered = rows(exact["speedups"], server="ddtree-b7", **where).iloc[0]
    assert (answered["n"], answered["pairs"]) == (8, 16)
    one_timed_out = rows(exact["speedups"], server="ddtree-b31", **where).iloc[0]
    assert (one_timed_out["n"], one_timed_out["pairs"]) == (8, 15)


def test_speedups_exist_against_the_chain_and_not_for_quality_cells(exact: dict[str, pd.DataFrame]) -> None:
    found = rows(exact["speedups"], against="chain", metric="decode", workload="short", server="ddtree-b15")
    assert list(found["ratio"]) == pytest.approx([ARMS["ddtree-b15"].speedup(ARMS["dflash-chain16"])] * len(found))
    assert "humaneval" not in set(exact["speedups"]["workload"])


@pytest.mark.parametrize("server", OTHERS)
def test_acceptance_and_its_factors_are_the_true_ones(exact: dict[str, pd.DataFrame], server: str) -> None:
    row = rows(exact["acceptance"], server=server, workload="all", concurrency=1).iloc[0]
    arm = ARMS[server]
    assert row["tau"] == pytest.approx(arm.tau)
    assert row["ms_per_step"] == pytest.approx(arm.step_ms)
    assert row["relative_step_time"] == pytest.approx(arm.step_ms / BASE.step_ms)
    assert row["decode_speedup"] == pytest.approx(arm.tau / row["relative_step_time"])
    assert row["nodes_per_step"] == arm.width


def test_share_by_depth(exact: dict[str, pd.DataFrame]) -> None:
    found = rows(exact["depth"], server="dflash-chain16", workload="short", concurrency=1).set_index("depth")
    assert found["share"].to_dict() == pytest.approx({1: 1.0, 2: 0.75, 3: 0.25})
    assert set(found["n"]) == {16 * 16}


def test_the_best_server_is_chosen_on_one_half_and_measured_on_the_other(exact: dict[str, pd.DataFrame]) -> None:
    for against, truth in (("baseline", BASE), ("chain", ARMS["dflash-chain16"])):
        for row in rows(exact["best"], against=against, metric="decode").itertuples():
            assert (row.server, row.server_second) == ("ddtree-b7", "ddtree-b7")
            assert row.ratio == pytest.approx(ARMS["ddtree-b7"].speedup(truth))


def test_equal_runs_differ_by_nothing_without_jitter_and_by_something_with_it(
    exact: dict[str, pd.DataFrame], tmp_path: Path
) -> None:
    assert list(exact["noise"]["floor"]) == pytest.approx([0.0] * len(exact["noise"]))
    noisy = tables.read(synthetic.tables(tmp_path, synthetic.write(tmp_path, jitter=0.1)))["noise"]
    floor = rows(noisy, server="all", metric="e2e").iloc[0]
    assert 0 < floor["floor"] < 0.2
    assert floor["comparisons"] == 2 * len(ARMS)


def test_each_failure_is_listed_once_with_its_reason(exact: dict[str, pd.DataFrame]) -> None:
    found = {(r.scope, r.server, r.category) for r in exact["failures"].itertuples()}
    assert found == {
        ("start", synthetic.FAILING_SERVER, "out_of_memory"),
        ("server", synthetic.FAILING_SERVER, "out_of_memory"),
        ("server", synthetic.UNMEASURED_SERVER, "not_run"),
        ("cell", synthetic.FAILED_CELL[0], "cell_timeout"),
        ("request", synthetic.TIMED_OUT[0], "Timeout"),
        ("client", synthetic.DISTORTED_CELL[0], "client_distorted"),
        ("client", synthetic.DISTURBED_CELL[0], "disturbed"),
    }
    log = rows(exact["failures"], scope="server", category="out_of_memory")["log_lines"].item()
    assert "RuntimeError: can't allocate memory" in log
    states = exact["arms"].set_index("server")["status"].to_dict()
    assert states[synthetic.FAILING_SERVER] == "failed"
    assert states[synthetic.UNMEASURED_SERVER] == "not run"
    assert states["prompt-lookup"] == "partly"
    assert states["ddtree-b7"] == "measured"


def test_a_servers_start_is_known_from_its_cells(exact: dict[str, pd.DataFrame]) -> None:
    arms = exact["arms"]
    assert (arms[arms["cells_measured"] > 0]["start_s"] == 4.5).all()
    assert arms[arms["cells_measured"] == 0]["start_s"].isna().all()


def test_every_row_with_a_measured_number_names_existing_files(exact: dict[str, pd.DataFrame]) -> None:
    for name in (
        "requests",
        "cells",
        "throughput",
        "speedups",
        "best",
        "noise",
        "acceptance",
        "depth",
        "coding",
        "lossless",
    ):
        assert len(exact[name]), name
        for paths in exact[name]["path"]:
            assert paths, name
            assert all(Path(path).is_file() for path in paths.split()), name


def test_csv_and_parquet_hold_the_same_rows_in_the_same_order(folder: Path) -> None:
    for name in tables.TABLES:
        from_csv, from_parquet = pd.read_csv(folder / f"{name}.csv"), pd.read_parquet(folder / f"{name}.parquet")
        assert list(from_csv.columns) == list(from_parquet.columns)
        assert list(from_csv["row"]) == list(from_parquet["row"]) == list(range(len(from_parquet)))


def test_an_edited_or_stale_cell_has_no_numbers_but_a_reason(tmp_path: Path) -> None:
    plan = synthetic.write(tmp_path)
    cells = tmp_path / "results" / "synthetic" / "cells" / "ddtree-b7"
    edited, stale = cells / "short" / "c1.json", cells / "long" / "c1.json"
    edited.write_text(edited.read_text().replace('"attempt":1', '"attempt":2'))
    write_cell(stale, read_cell(stale).model_copy(update={"key": "other"}))
    found = tables.read(synthetic.tables(tmp_path, plan))
    bad = rows(found["failures"], category="unusable_cell")
    assert set(bad["path"]) == {str(edited), str(stale)}
    mine = rows(found["cells"], server="ddtree-b7", concurrency=1)
    assert not set(mine["workload"]) & {"short", "long"}


def test_a_damaged_manifest_is_refused_by_name(tmp_path: Path) -> None:
    plan = synthetic.write(tmp_path)
    path = tmp_path / "results" / "synthetic" / "sessions" / "ddtree-b7.json"
    path.write_text(path.read_text()[:100])
    with pytest.raises(BadResult) as refused:
        synthetic.tables(tmp_path, plan)
    assert str(path) in str(refused.value)
    assert Manifest.__name__ in str(refused.value)
    assert "\n" not in str(refused.value)
