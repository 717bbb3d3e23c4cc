"""What was saved, and what is held after a load, by name."""

from __future__ import annotations

import pytest

from ddpcheck import evidence as ev
from ddpcheck.checks.checkpoint_reshard.run import judge
from tests.judging.own_reductions import averaged
from tests.judging.written import file, load, rename, step, world
from tests.judging.written_state import Forms, moment, part, plain, weight

BOTH = {"how": "dcp.save", "ranks": (0, 1)}


def of(*ranks):
    return judge(world(*ranks))


# --- by torch.distributed.checkpoint


def through_torch(before, after):
    """What each of two ranks gives and gets."""
    ranks = []
    for given, got in zip(before, after, strict=True):
        forms = Forms()
        ranks.append([*forms.saved(10, "/job/c", given, **BOTH), *forms.read(11, "dcp.load", got, path="/job/c")])
    return of(*ranks)


HALVES = [part("w", 0, 4, 1, 2), part("w", 2, 4, 3, 4)]


@pytest.mark.parametrize(
    "after", [HALVES, [part("w", 0, 4, 1, 2, 3), part("w", 3, 4, 4)], [part("w", 0, 4, 1, 2, 3, 4)] * 2]
)
def test_the_same_tensor_however_it_is_cut(after):
    judged = through_torch(HALVES, after)
    assert judged.checked
    assert judged.findings == ()


@pytest.mark.parametrize(
    ("after", "words"),
    [
        ([part("w", 0, 4, 3, 4), part("w", 2, 4, 1, 2)], "in another order"),
        ([part("w", 0, 4, 1, 2), part("w", 2, 4, 1, 2)], "other values"),
    ],
)
def test_parts_that_come_back_otherwise(after, words):
    (found,) = through_torch(HALVES, after).findings
    assert (found.severity, found.ranks, found.subject) == ("error", (0, 1), "w")
    assert words in found.found


def test_a_part_that_was_not_seen():
    """Rank 1 has not said what it got."""
    judged = of(
        [*Forms().saved(10, "/job/c", HALVES[0], **BOTH)],
        [*Forms().saved(10, "/job/c", HALVES[1], **BOTH), *Forms().read(11, "dcp.load", HALVES[1], path="/job/c")],
    )
    assert (judged.checked, judged.findings) == (0, ())


@pytest.mark.parametrize(
    ("name", "role", "severity"),
    [
        ("rng", "random", "error"),
        ("loader.position", "", "warning"),
        ("loss", "", "warning"),
        ("generator.mean", "buffer", "warning"),
    ],
)
def test_what_another_rank_has_saved(name, role, severity):
    """Of plain values one rank's are written."""
    values = [plain(name, number, role=role) for number in (1, 2)]
    (found,) = through_torch(values, [values[0]] * 2).findings
    assert (found.severity, found.ranks) == (severity, (1,))


def test_a_checkpoint_that_was_saved_over_without_a_look():
    """Of saves of one line not all are looked at: what was there before is no longer there."""
    ranks = []
    for given, got in zip(HALVES, [part("w", 0, 4, 5, 6), part("w", 2, 4, 7, 8)], strict=True):
        forms = Forms()
        began = ev.SaveBegan, {"path": "/job/c"}
        saves = [began, *forms.saved(10, "/job/c", given, **BOTH), began]
        ranks.append([*saves, *forms.read(11, "dcp.load", got, path="/job/c")])
    judged = of(*ranks)
    assert (judged.checked, judged.findings) == (0, ())


def test_copies_that_are_stepped_apart():
    """Local SGD: the momentum of one rank may be meant to serve all."""
    values = [plain("m", number, role="moment", of="a", key="momentum_buffer") for number in (1, 2)]
    ranks = []
    for given in values:
        forms = Forms()
        saves = forms.saved(10, "/job/c", given, **BOTH)
        ranks.append([*averaged(), *saves, *forms.read(11, "dcp.load", values[0], path="/job/c")])
    (found,) = of(*ranks).findings
    assert (found.severity, found.ranks) == ("warning", (1,))
    (found,) = through_torch(values, [values[0]] * 2).findings
    assert found.severity == "error"


@pytest.mark.parametrize("put", [
    file("write", "open", "/job/c", 12),  # as shutil.copy() does
    rename("/job/other", "/job/c", 12),
])  # fmt: skip
def test_a_checkpoint_that_something_else_was_put_in_the_place_of(put):
    ranks = []
    for given, got in zip(HALVES, [part("w", 0, 4, 5, 6), part("w", 2, 4, 7, 8)], strict=True):
        forms = Forms()
        saves = [*forms.saved(10, "/job/c", given, **BOTH), put]
        ranks.append([*saves, *forms.read(11, "dcp.load", got, path="/job/c")])
    judged = of(*ranks)
    assert (judged.checked, judged.findings) == (0, ())


# --- into modules


def rows(files, after, *, given=None, path="/job/0.pt"):
    """Parts that two ranks have saved in files of their own, and what rank 0's module holds after a load."""
    first, second = (Forms(), Forms())
    loads = [load(f"/job/{rank}.pt", 20) for rank in (0, 1)]
    mine = [*first.saved(10, path, files[0]), *([rename(path, "/job/0.pt", 11)] if path != "/job/0.pt" else [])]
    more = {} if given is None else {"given": given}
    return of(
        [*mine, *[step(12)] * 4, *loads, *first.read(21, "module", after, **more)],
        [*second.saved(10, "/job/1.pt", files[1])],
    )


def held(*elements):
    return plain("w", *elements, role="parameter", of="w", live=True)


@pytest.mark.parametrize("path", ["/job/0.pt", "/job/0.pt.tmp"])
def test_rows_joined_in_their_order(path):
    judged = rows(HALVES, held(1, 2, 3, 4), path=path)
    assert (judged.checked, judged.findings) == (1, ())


def test_rows_joined_in_another_order():
    (found,) = rows(HALVES, held(3, 4, 1, 2)).findings
    assert (found.severity, found.subject, found.where.line) == ("error", "w", 21)
    assert "another order" in found.found


def test_a_ranks_own_rows():
    """In a module that was made for its part."""
    forms = Forms()
    judged = of(
        [
            *forms.saved(10, "/job/0.pt", HALVES[0]),
            step(12),
            load("/job/0.pt", 20),
            *forms.read(21, "module", held(1, 2)),
        ],
        [*Forms().saved(10, "/job/1.pt", HALVES[1]), step(12)],
    )
    assert (judged.checked, judged.findings) == (0, ())


def test_one_ranks_rows_for_all():
    (found,) = rows(HALVES, held(1, 2)).findings
    assert "one rank's part" in found.found


def test_other_values_may_be_meant():
    (found,) = rows(HALVES, held(1, 2, 3, 9)).findings
    assert found.severity == "warning"


@pytest.mark.parametrize(
    ("after", "given"),
    [
        (held(3, 4, 1, 2), 0),  # not all that it has was given
        (plain("other", 3, 4, 1, 2, role="parameter", of="other"), 1),
        (plain("w", 3, 4, 1, 2, 5, 6, role="parameter", of="w"), 1),
    ],
)
def test_what_does_not_come_from_there(after, given):
    judged = rows(HALVES, after, given=given)
    assert (judged.checked, judged.findings) == (0, ())


def test_a_name_that_two_parts_of_the_state_have():
    """The model's, and that of its average."""
    forms = Forms()
    average = part("average.w", 0, 4, 5, 6, 7, 8)
    saves = forms.saved(10, "/job/0.pt", part("model.w", 0, 4, 1, 2, 3, 4), average)
    judged = of([*saves, load("/job/0.pt", 20), *forms.read(21, "module", held(2, 1, 3, 4))])
    assert (judged.checked, judged.findings) == (0, ())


def one_file(before, after):
    """What rank 0 saves, of plain tensors, and what its module holds after a load."""
    forms = Forms()
    names = ("a", "b", "c")
    given = [weight(f"net.{name}", *its) for name, its in zip(names, before, strict=True)]
    held = [weight(name, *its) for name, its in zip(names, after, strict=True)]
    return of([*forms.saved(10, "/job/0.pt", *given), load("/job/0.pt", 20), *forms.read(21, "module", *held)])


def test_one_file_is_loaded():
    judged = one_file([(1, 2), (3, 4), (5, 6)], [(1, 2), (3, 4), (5, 6)])
    assert (judged.checked, judged.findings) == (3, ())


def test_tensors_that_several_ranks_load():
    """Each counts once by its name, on all ranks that hold copies and at each load."""
    ranks = []
    for rank in (0, 1):
        forms = Forms()
        saves = forms.saved(10, "/job/0.pt", weight("w", 1, 2), moment("w", 3, 4)) if rank == 0 else []
        loads = [load("/job/0.pt", 20), *forms.read(21, "module", weight("w", 1, 2))] * 2
        ranks.append([*saves, *loads, *forms.read(22, "optimizer", moment("w", 3, 4))])
    judged = of(*ranks)
    assert (judged.checked, judged.findings) == (2, ())


@pytest.mark.parametrize(
    "after",
    [
        [(1, 2), (3, 4), (9, 9)],
        [(1, 2), (1, 2), (5, 6)],
        [(1, 2), (1, 2), (1, 2)],  # such as a decoder that begins as its encoder
        [(1, 2), (1, 2), (3, 4)],
    ],
)
def test_values_that_the_program_has_made(after):
    assert one_file([(1, 2), (3, 4), (5, 6)], after).findings == ()


def stages(*, received=False):
    """Two ranks with parameters of the same names, each of which loads its own file; or one loads for both."""
    ranks = []
    for rank in (0, 1):
        forms, path = Forms(), f"/job/{rank}.pt"
        its = [weight("a", rank, 2), weight("b", rank, 4)]
        loads = [] if received and rank else [load(path, 20)]
        ranks.append([*forms.saved(10, path, *its), step(12), *loads, *forms.read(21, "module", *its)])
    return of(*ranks)


def test_stages_have_the_same_names_for_different_parameters():
    """Whichever rank loads first."""
    judged = stages()
    assert (judged.checked, judged.findings) == (4, ())


def test_what_a_rank_is_sent_comes_from_what_another_one_has_loaded():
    judged = stages(received=True)
    assert judged.findings == ()
    assert judged.checked == 2


# --- into optimizers


def moments(before, after, kinds=("a", "b")):
    forms = Forms()
    saves = forms.saved(10, "/job/0.pt", *[moment(kind, *its) for kind, its in zip(kinds, before, strict=True)])
    return of(
        [
            *saves,
            load("/job/0.pt", 20),
            *forms.read(21, "optimizer", *[moment(kind, *its) for kind, its in zip(kinds, after, strict=True)]),
        ]
    )


def test_moments_of_the_same_parameters():
    judged = moments([(1, 2), (3, 4)], [(1, 2), (3, 4)])
    assert (judged.checked, judged.findings) == (2, ())


def test_moments_of_other_parameters():
    (found,) = moments([(1, 2), (3, 4)], [(3, 4), (1, 2)]).findings
    assert (found.severity, found.subject) == ("error", "a")
    assert "a has those of b" in found.found


def test_moments_that_the_program_has_made():
    assert moments([(1, 2), (3, 4)], [(0, 0), (0, 0)]).findings == ()
    assert moments([(1, 2), (0, 0)], [(0, 0), (0, 0)]).findings == ()  # begun anew, as another's were never begun


def after_a_load(*ranks):
    """What the optimizers of ranks hold: the elements of a parameter, and of its moment."""
    common = weight("b", 1, 5)
    return of(*(Forms().read(22, "optimizer", common, weight("a", *own), moment("a", *its)) for own, its in ranks))


def test_moments_of_another_rank():
    """Each has a parameter of its own, and all have the moments of one of these."""
    (found,) = after_a_load(((1, 2), (5, 6)), ((3, 4), (5, 6)), ((7, 8), (1, 9))).findings
    assert (found.rule, found.severity, found.ranks) == ("moments-of-another-rank", "error", (0, 1))


def test_moments_of_a_member_that_others_take_over():
    """They have no parameter in common: each trains a model of its own."""
    ranks = (Forms().read(22, "optimizer", weight("a", *own), moment("a", 5, 6)) for own in ((1, 2), (3, 4)))
    assert of(*ranks).findings == ()


@pytest.mark.parametrize(
    "ranks",
    [
        [((1, 2), (5, 6)), ((3, 4), (7, 8))],
        [((1, 2), (5, 6)), ((1, 2), (5, 6))],
        [((1, 2), (0, 0)), ((3, 4), (0, 0))],
    ],
    ids=["its own", "copies", "begun anew"],
)
def test_moments_of_its_own(ranks):
    assert after_a_load(*ranks).findings == ()


# --- files made of files


def merged(*values):
    forms = Forms()
    loads = [load(f"/job/{rank}.pt", 20) for rank in (0, 1)]
    mine = [part("w", 0, 4, 1, 2), part("n", 0, 4, 1, 1)]
    return of(
        [*forms.saved(10, "/job/0.pt", *mine), *[step(12)] * 4, *loads, *forms.saved(21, "/job/whole.pt", *values)],
        [*Forms().saved(10, "/job/1.pt", part("w", 2, 4, 3, 4), part("n", 2, 4, 1, 1))],
    )


def test_equal_parts_taken_for_copies():
    (found,) = merged(plain("w", 1, 2, 3, 4), plain("n", 1, 1)).findings
    assert (found.severity, found.ranks, found.subject, found.where.line) == ("error", (0,), "n", 21)


@pytest.mark.parametrize("n", [(1, 1, 1, 1), (1, 1)])
def test_files_that_are_right(n):
    """Wholes of parts, or parts of parts."""
    w = (1, 2, 3, 4) if len(n) == 4 else (1, 2)
    assert merged(plain("w", *w), plain("n", *n)).findings == ()


def test_nothing_is_loaded():
    judged = of([*Forms().saved(10, "/job/0.pt", HALVES[0])])
    assert (judged.checked, judged.skipped_because) == (0, "ddpcheck did not see both a save and a load of state")


def test_what_was_seen_in_part_is_not_checked():
    """What was loaded may be among what was left out when it was saved."""
    forms = Forms()
    saved = forms.saved(10, "/job/c", part("w", 0, 2, 1, 2), how="dcp.save", ranks=(0,), left_out=1)
    judged = of([*saved, *forms.read(11, "dcp.load", part("w", 0, 2, 5, 6), path="/job/c")])
    assert (judged.checked, judged.findings) == (0, ())
    assert judged.skipped_because == "a state dict with more than 1 entries was looked at in part"
