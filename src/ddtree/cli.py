"""`ddtree plan|why|check [FILE...]`: look at a plan without Snakemake; `ddtree mock`: a server to test clients with."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ddtree.plan.files import PlanError
from ddtree.plan.layout import Layout
from ddtree.plan.load import load
from ddtree.plan.show import show
from ddtree.plan.why import why
from ddtree.plan.workflow import DEFAULT_PLAN


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["mock"]:
        from ddtree.mock import command  # with its HTTP server, which looking at a plan need not load

        return command.main(given[1:])
    parser = argparse.ArgumentParser(
        prog="ddtree",
        description="Look at a plan without running it.",
        epilog="`ddtree mock --help`: a server without a model, to test load clients with.",
    )
    meaning = "plan: what would run; why: for each cell, why it would run or not; check: mistakes only"
    parser.add_argument("command", choices=["plan", "why", "check"], help=meaning)
    parser.add_argument("files", nargs="*", type=Path, default=[DEFAULT_PLAN], help=f"default: {DEFAULT_PLAN}")
    args = parser.parse_args(given)
    try:
        plan = load(args.files)
    except PlanError as error:
        print(error, file=sys.stderr)
        return 1
    layout = Layout(plan.plan)
    match args.command:
        case "plan":
            print(show(plan, layout))
        case "why":
            print(why(plan, layout), end="")
        case _:
            print(f"{', '.join(map(str, args.files))}: ok")
    return 0
