"""Trees as no drafter would make them, for properties that must hold for any."""

from hypothesis import strategies as st

from ddtree.tree import Tree

VOCABULARY = 4


@st.composite
def trees(draw: st.DrawFn, most: int) -> Tree:
    """Any tree of at most `most` nodes whose siblings differ, not only best-first ones."""
    tokens, parents, depths = [draw(st.integers(0, VOCABULARY - 1))], [-1], [0]
    taken: set[tuple[int, int]] = set()
    for _ in range(draw(st.integers(0, most - 1))):
        parent, token = draw(st.integers(0, len(tokens) - 1)), draw(st.integers(0, VOCABULARY - 1))
        if (parent, token) not in taken:
            taken.add((parent, token))
            tokens.append(token)
            parents.append(parent)
            depths.append(depths[parent] + 1)
    return Tree(tuple(tokens), tuple(parents), tuple(depths))
