"""How a server looks everywhere: one colour per method, one shade and mark per server, in one order. No data here.

The hues are from Okabe and Ito's palette, which stays apart under the common colour-vision deficiencies; marks and the
lightness of the tree shades carry the distinction in print.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ddtree.plan.schema import Plan

METHOD_LABEL = {
    "autoregressive": "autoregressive",
    "prompt_lookup": "prompt lookup",
    "dflash": "DFlash chain",
    "ddtree": "DDTree",
}
_SHADES: dict[str, tuple[tuple[int, int, int], ...]] = {  # from light to dark, first to last server of the method
    "autoregressive": ((90, 90, 90), (140, 140, 140)),
    "prompt_lookup": ((230, 159, 0), (180, 120, 0)),
    "dflash": ((0, 114, 178), (86, 180, 233)),
    "ddtree": ((118, 205, 172), (0, 150, 110), (0, 80, 58)),
}
_MARKS = {
    "autoregressive": ("*", "o"),
    "prompt_lookup": ("diamond*", "diamond"),
    "dflash": ("square*", "square"),
    "ddtree": ("triangle*", "pentagon*", "oplus*", "otimes*", "halfcircle*", "triangle"),
}


@dataclass(frozen=True)
class ServerStyle:
    server: str
    method: str
    rank: int  # place in the order of every chart
    color: str  # name that the LaTeX preamble defines
    rgb: tuple[int, int, int]
    mark: str


def styles(plan: Plan) -> dict[str, ServerStyle]:
    """Style of each server, keyed and ordered by name: methods in a fixed order, trees by budget."""
    ordered = order(plan)
    result: dict[str, ServerStyle] = {}
    for server in ordered:
        method = plan.servers[server].method
        siblings = [s for s in ordered if plan.servers[s].method == method]
        place = siblings.index(server)
        result[server] = ServerStyle(
            server=server,
            method=method,
            rank=len(result),
            color=f"arm{_letters(len(result))}",
            rgb=_shade(_SHADES[method], place, len(siblings)),
            mark=_MARKS[method][place % len(_MARKS[method])],
        )
    return result


def order(plan: Plan) -> list[str]:
    """Servers as every chart and table lists them."""
    methods = list(METHOD_LABEL)
    servers = list(plan.servers)
    return sorted(
        servers,
        key=lambda s: (methods.index(plan.servers[s].method), plan.servers[s].budget or 0, servers.index(s)),
    )


def definitions(looks: Sequence[ServerStyle]) -> str:
    """LaTeX that defines the colours."""
    return "\n".join(rf"\definecolor{{{look.color}}}{{RGB}}{{{','.join(str(c) for c in look.rgb)}}}" for look in looks)


def _shade(stops: tuple[tuple[int, int, int], ...], place: int, count: int) -> tuple[int, int, int]:
    if count == 1:
        return stops[len(stops) // 2] if len(stops) == 3 else stops[0]
    x = place / (count - 1) * (len(stops) - 1)
    low = min(int(x), len(stops) - 2)
    a, b = stops[low], stops[low + 1]
    red, green, blue = (round(p + (q - p) * (x - low)) for p, q in zip(a, b, strict=True))
    return red, green, blue


def _letters(number: int) -> str:
    text = chr(ord("a") + number % 26)
    return text if number < 26 else _letters(number // 26 - 1) + text
