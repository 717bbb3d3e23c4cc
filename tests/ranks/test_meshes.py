"""What shapes a mesh over all ranks may have."""

from __future__ import annotations

import pytest

from ddpcheck.ranks.meshes import shape_of


@pytest.mark.parametrize(
    ("asked", "names", "world_size", "shape"),
    [
        ((2, 2), ("replicate", "shard"), 4, (2, 2)),
        ((2, -1), (), 6, (2, 3)),
        ((-1,), ["tp"], 3, (3,)),
        ((-1, 4), (), 4, (1, 4)),
        ((), (), 2, (2,)),
        ((), ("dp",), 2, (2,)),
        ((1,), (), 1, (1,)),
    ],
)
def test_shapes_that_fit(asked, names, world_size, shape):
    """All ranks are in it, and -1 stands for what is left."""
    assert shape_of(asked, names, world_size) == shape


@pytest.mark.parametrize(
    ("asked", "names", "words"),
    [
        ((3,), (), "ddp.mesh(3) has 3 ranks, and the test has 4: let all ranks be in it"),
        ((2, 4), (), "ddp.mesh(2, 4) has 8 ranks, and the test has 4"),
        ((1,), (), "ddp.mesh(1) has 1 rank, and the test has 4"),
        ((3, -1), (), "ddp.mesh(3, -1) does not fit the test's 4 ranks"),
        ((8, -1), (), "ddp.mesh(8, -1) does not fit the test's 4 ranks"),
        ((-1, -1), (), "only one dimension can be -1"),
        ((0, 4), (), "expected whole numbers of ranks"),
        ((-2, -2), (), "expected whole numbers of ranks"),
        ((2.0, 2), (), "expected whole numbers of ranks"),
        ((True, 4), (), "expected whole numbers of ranks"),
        (((2, 2),), (), "expected whole numbers of ranks"),
        ((2, 2), ("dp",), "('dp',) names no 2 dimensions"),
        ((2, 2), "dp", "'dp' names no 2 dimensions"),
        ((2, 2), ("dp", "dp"), "expected a name of its own for each"),
    ],
)
def test_shapes_that_do_not(asked, names, words):
    """One sentence, in which no rank is named: it is the same on all of them."""
    with pytest.raises(ValueError, match="mesh") as raised:
        shape_of(asked, names, 4)
    assert words in str(raised.value)
