"""Does every sample count the same in an update, as in one process? Judge of token-weight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial

from ddpcheck.checks.token_weight import CHECK
from ddpcheck.checks.weight_rows import WeightRow, read_weights
from ddpcheck.facts import group_sizes, weights
from ddpcheck.judging import step_alignment
from ddpcheck.judging.world import Judged, World
from ddpcheck.relations.alike import Pattern

UNSEEN = "ddpcheck saw no step that is a sum of gradients of losses which it could take apart"

_ALIKE = "every element of the loss to count the same in the update, as in one process that takes the whole batch"
_UNEVEN = "{heavy} to count {ratio} times as much as {light}"
_OWN_MEANS = "the loss is a mean over the elements of one rank or one micro-batch, and the numbers of these differ"
_GATHERED = (
    "Divide by the number of elements that all ranks have in the step together: all_reduce it, and multiply the sum "
    "of the losses by the world size (by which DDP divides)."
)
_MEAN = "the elements of all ranks to count in a step as much as those of one process that takes the mean over them"
_TIMES = (
    "{times} that: elements of the loss have the weight {weight}, and the gradients of {over} are added up and "
    "multiplied by {factor}"
)


def _off_by_factor(rule: str, pattern: Pattern) -> Iterator[WeightRow]:
    """Whether too much or too little."""
    for is_larger, cause, advice in (
        (
            True,
            "the loss or its gradients are multiplied by it, or added up so many times, and not divided by it",
            "Multiply the loss by the ranks over which gradients are averaged, or by what undoes the division, and by "
            "nothing else",
        ),
        (
            False,
            "the loss or its gradients are divided by it once too often",
            "Leave one of the divisions out, or multiply the loss by what undoes it",
        ),
    ):
        yield WeightRow(
            rule=rule,
            pattern=pattern,
            is_larger=is_larger,
            expected=_MEAN,
            found=_TIMES,
            cause=f"{{size}} is {{called}}: {cause}",
            advice=f"{advice}; or accept it, where the learning rate was chosen so.",
        )


def _of_parameters(rule: str, pattern: Pattern) -> Iterator[WeightRow]:
    """Whether one is given too much or too little."""
    for is_larger, cause in (
        (True, "gradients are divided by the ranks that hold a copy, and not by those whose tokens they come from"),
        (False, "gradients are divided by it once too often"),
    ):
        yield WeightRow(
            rule=rule,
            pattern=pattern,
            is_larger=is_larger,
            expected="a token to count the same in {name} as in {usual}",
            found="{times} that: gradients of {name} are added up over {over} and multiplied by {factor}, those of "
            "{usual} over {of_usual} and multiplied by {usual_factor}, while the same tokens reach either",
            cause=f"{{size}} is {{called}}: {cause}",
            advice="Divide the gradients of {name} by the ranks whose losses its tokens are in, whichever hold a copy "
            "(under FSDP2 by set_gradient_divide_factor); or accept it, where the loss or a hook divides for it.",
            subject="{name}",
        )


ROWS = (
    WeightRow(
        rule="inconsistent-loss-parts",
        pattern="part",
        severity="error",
        expected=_ALIKE + ", and as the elements of the other part of the loss do, which are divided by the number on "
        "all ranks",
        found=_UNEVEN,
        cause=_OWN_MEANS,
        advice=_GATHERED,
        subject="the loss ({by})",
    ),
    WeightRow(
        rule="unequal-rank-weights",
        pattern="ranks",
        expected=_ALIKE,
        found=_UNEVEN,
        cause=_OWN_MEANS,
        advice=_GATHERED,
        subject="the loss ({by})",
    ),
    WeightRow(
        rule="unequal-rank-weights",
        pattern="groups",
        expected=_ALIKE,
        found=_UNEVEN,
        cause="the loss is divided by the elements of some of the ranks, and the numbers of these differ",
        advice=_GATHERED,
        subject="the loss ({by})",
    ),
    WeightRow(
        rule="unequal-micro-batch-weights",
        pattern="calls",
        expected=_ALIKE,
        found=_UNEVEN,
        cause=_OWN_MEANS,
        advice="Divide by the number of elements that all micro-batches of the step have together: count them before "
        "the first backward() of the step.",
        subject="the loss ({by})",
    ),
    WeightRow(
        rule="undivided-micro-batches",
        pattern="added",
        expected="the {calls} of a step to count as much as one batch of all their elements, of which the loss is the "
        "mean",
        found="{calls} before the step, each with the whole weight of a mean: the update is that of {size} times the "
        "mean",
        cause="the loss is not divided by the number of micro-batches",
        advice="Divide the loss by the number of micro-batches before backward(): (loss / {size}).backward().",
    ),
    *_off_by_factor("loss-off-by-factor", "scaled"),
    *_off_by_factor("mean-off-by-factor", "times"),
    WeightRow(
        rule="short-last-window",
        pattern="short",
        expected="the {calls} of a step to make one mean, as the {size} of other steps do",
        found="each loss to be divided by {size} there, too: that step takes only a part of the mean",
        cause="the loss is divided by the size of a whole window, which the loader's batches do not fill at the end",
        advice="Divide by the number of micro-batches that a window has, the last one of a pass included; or leave "
        "out what does not fill one, and call zero_grad().",
        subject="the loss of a short window",
    ),
    WeightRow(
        rule="partial-window-divisor",
        pattern="one call",
        expected="the sums of {calls} to be divided by the {elements} that all of them have on all ranks",
        found="the gradients to be divided by {of_call}, which are those of {call} alone",
        cause="the number of one micro-batch is taken for that of the window",
        advice="Add the numbers of all micro-batches up, and over the ranks, before gradients are divided.",
    ),
    WeightRow(
        rule="undivided-token-sum",
        pattern="sum",
        expected="a step to count as much as one mean over its tokens, however many there are",
        found="sums over {elements}, over other numbers in other steps, each element with the weight 1",
        cause="the loss is divided by the tokens only when backward() has run, or not at all",
        advice="Divide in the loss function; or accept it, where the learning rate was chosen so.",
    ),
    *_of_parameters("unequal-parameter-weights", "tensors"),
    *_of_parameters("parameter-off-by-factor", "factor"),
    WeightRow(
        rule="missing-loss-factor",
        pattern="lacking",
        expected="both parts of the loss, which are divided by the elements of all ranks, to be multiplied by {size}: "
        "with it, the other part is the mean over these",
        found="the other part is multiplied by {size}, and this one is not",
        cause="{size} is {called}: this part lacks it, and is weakened by it",
        advice="Multiply the sum of the parts by what undoes the division of gradients, and not each part.",
        subject="a part of the loss ({by})",
    ),
)


def judge(world: World) -> Judged:
    """Compare the weights of all elements, step by step."""
    called = partial(group_sizes.name, world)
    found = read_weights(weights.of(world), ROWS, group_sizes.groups(world), called)
    advisories = {rule.name for rule in CHECK.rules if rule.advisory}
    most = max((one.count for one in found.findings if one.rule not in advisories), default=0)
    checked, made = step_alignment.coverage(world, found.windows, most)
    reason = (Counter(found.whys).most_common(1) or [(UNSEEN, 0)])[0][0]
    return Judged(checked=max(checked, most), of=made, findings=tuple(found.findings), skipped_because=reason)
