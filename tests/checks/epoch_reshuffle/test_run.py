"""The judge of epoch-reshuffle in a run, over passes written by hand."""

from __future__ import annotations

from ddpcheck.checks.epoch_reshuffle.run import judge
from ddpcheck.checks.registry import checks
from tests.judging.loaded import OWN, PLAIN, loader, through
from tests.judging.written import world, wrapped


def epochs(*ranks):
    return judge(world(*[[wrapped(5), *own] for own in ranks]))


def again(*ranks):
    (finding,) = epochs(*ranks).findings
    return finding


def trained(*orders, line=20, numbers=None):
    """Passes with these epochs and orders."""
    return [
        made
        for number, (epoch, order) in enumerate(orders)
        for made in through(range(12), number, epoch=epoch, order=order, line=line)
    ]


def test_other_orders_hold():
    """Each epoch after the first counts: three passes are shuffled anew twice."""
    assert checks()["epoch-reshuffle"].unit == "reshuffle"
    own = [loader(), *trained((0, "a"), (1, "b"), (2, "c"))]
    judged = epochs(own, own)
    assert (judged.checked, judged.findings) == (2, ())


def test_what_no_order_could_have_come_again_in():
    """A pass that was broken off elsewhere, too few samples to tell, and a rank that was through once."""
    whole = [loader(), *trained((0, "a"), (1, "b"))]
    cut = [loader(), *trained((0, "a")), *through(range(11), 1, epoch=1, order="b")]
    few = [loader(), *through(range(4), epoch=0, order="a"), *through(range(4), 1, epoch=1, order="b")]
    once = [loader(), *trained((0, "a"))]
    assert [epochs(whole, other).checked for other in (whole, cut, few, once)] == [1, 0, 0, 0]
    assert "equally many samples twice" in epochs(cut).skipped_because


def test_without_set_epoch_the_order_comes_again():
    """It is told at the loop, with the line of the sampler."""
    own = [loader(), *trained((0, "a"), (0, "a"), (0, "a"))]
    finding = again(own, own)
    assert finding.found == "passes 1 and 2 through the DistributedSampler in the same order"
    assert finding.cause.endswith("the epoch was 0 both times")
    assert (finding.severity, finding.where.line, finding.count) == ("error", 20, 2)
    assert finding.proof[0][1].line == 11


def test_a_second_look_at_an_epoch_is_no_fault():
    """An epoch may be gone through twice, as long as there is another one."""
    assert epochs([loader(), *trained((0, "a"), (1, "b"), (1, "b"))]).findings == ()


def test_a_sampler_that_ignores_its_epoch():
    """set_epoch was called, and changes nothing."""
    finding = again([loader(), *trained((0, "a"), (1, "a"))])
    assert finding.cause == "the sampler's order does not depend on its epoch (0, then 1)"


def test_evaluation_needs_no_other_order():
    """Only training passes are compared."""
    own = [loader(), *(m for n in range(3) for m in through(range(12), n, order="a", trained=False, grad=False))]
    assert (epochs(own).checked, epochs(own).findings) == (0, ())


def test_a_loader_for_every_epoch():
    """Loaders that one line makes anew are compared with each other."""
    own = [
        made
        for number in range(3)
        for made in [loader(loader=number), *through(range(12), of=number, order="a")]
    ]  # fmt: skip
    assert again(own).count == 2


def test_other_datasets_of_one_size_are_not_compared():
    """Two datasets that one line goes through may have the same order."""
    own = [
        made
        for number in range(2)
        for made in [loader(loader=number, dataset_id=number), *through(range(12), of=number, order="a")]
    ]  # fmt: skip
    assert epochs(own).findings == ()


def test_a_generator_that_is_seeded_anew():
    """Without ranks, too, an order that is meant to change has to."""
    finding = again([loader(**PLAIN), *trained((None, "a"), (None, "a"))])
    assert finding.cause == "the random state that it shuffles with was the same both times"


def test_loaders_that_go_side_by_side_have_orders_of_their_own():
    """What one has in its second epoch, another of that line may have in its first: their seeds differ by one."""

    def both(second):
        made = [loader(), loader(loader=1)]
        for number, orders in enumerate(zip("ab", second, strict=True)):
            one, other = (through(range(12), number, of=n, order=o, epoch=number) for n, o in enumerate(orders))
            made += [
                *one[:2],
                *other[:2],
                *[record for pair in zip(one[2:], other[2:], strict=True) for record in pair],
            ]
        return epochs(made, made)

    assert both("bc").findings == ()
    (finding,) = both("cc").findings
    assert finding.rule == "same-order-each-epoch"


def test_samplers_of_ones_own_may_keep_their_order():
    """A curriculum has the same order each time."""
    own = [loader(**OWN), *trained((None, "a"), (None, "a"))]
    assert epochs(own, own).findings == ()
