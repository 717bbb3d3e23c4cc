"""Does what was saved come back, by name, however it is cut by then? Judge of checkpoint-reshard."""

from __future__ import annotations

from ddpcheck.checks.rows import Words
from ddpcheck.checks.state_rows import PartedRow, StateRow, read_parted, read_states
from ddpcheck.facts import optimizer_loads, transfers
from ddpcheck.judging.world import Judged, World
from ddpcheck.relations.identity import shared

_PLACES = Words(
    "the parts are put together in another order than they were cut in",
    "Put parts together by their place in the whole (global shape and offset), in the order of the mesh's dimensions; "
    "torch.distributed.checkpoint does so for DTensors.",
)
_RANKS = Words(
    "a plain tensor or value of one name is written once, from one rank, and read by all",
    "Let a name mean the same on every rank: put the number of the stage, expert or rank into it.",
)
_ROWS = (
    StateRow(
        rule="reordered-elements",
        answer="order",
        transfers=("checkpoint", "module", "merged"),
        found="the same elements in another order in {tensors}, put together over all ranks: {names}",
        causes={"": _PLACES},
    ),
    StateRow(
        rule="part-for-whole",
        answer="part",
        transfers=("checkpoint", "module", "merged"),
        found="one rank's part in the place of the whole, which is {shape}, in {tensors}: {names}",
        causes={
            "": Words(
                "a part was taken for a copy of the whole",
                "Go by what is declared of each tensor, its placements or its global shape, never by its values.",
            )
        },
    ),
    StateRow(
        rule="changed-values",
        answer="values",
        transfers=("checkpoint",),
        found="other values in {tensors}, put together over all ranks: {names}",
        causes={"": Words("the planner, or what is done to the parts before or after, changes them", _PLACES.advice)},
    ),
    StateRow(
        rule="changed-values",
        answer="values",
        transfers=("module",),
        found="other values than all ranks together have saved in {tensors}: {names}",
        causes={"": Words("", _PLACES.advice)},
        severity="warning",
    ),
    StateRow(
        rule="values-of-another-rank",
        answer="rank",
        transfers=("checkpoint",),
        found="what rank {of} has saved, and not what was saved here, in {tensors}: {names}",
        causes={
            "trained": _RANKS,
            "": Words(
                _RANKS.cause,
                "Put the rank into the name of what is each rank's own, such as its random states and its place in the "
                "data.",
            ),
        },
    ),
    StateRow(
        rule="moments-of-another-parameter",
        answer="name",
        transfers=("optimizer",),
        expected="each parameter to get back its own moments",
        found="the moments of other parameters in {tensors}: {name} has those of {of} ({names})",
        causes={
            "": Words(
                "an optimizer's state goes by the order of its parameters, and that is another one now",
                "List the parameters in the same order before a save and after a load, or save by name: "
                "get_optimizer_state_dict() and set_optimizer_state_dict().",
            )
        },
    ),
)
_SHARED = PartedRow(
    rule="moments-of-another-rank",
    expected="each parameter to get back its own moments",
    found="the same moments on {ranks} for {parameters} that they hold other values of: {names}",
    words=Words(
        "parameters that each rank has for itself got the moments of one rank",
        "Load the state of what each rank has for itself from what that rank has saved.",
    ),
    severity="error",
)


def judge(world: World) -> Judged:
    """Compare what was given to be saved with what is held after a load, wherever the run shows both.

    Each tensor counts once by its name, on however many ranks and by however many loads it came back.
    """
    names, findings = read_states(transfers.of(world), _ROWS)
    moments = [shared(group) for group in optimizer_loads.of(world)]
    findings += read_parted(moments, _SHARED)
    checked = max(len(names), sum(one.compared for one in moments))
    return Judged(checked=checked, findings=tuple(findings), skipped_because="" if checked else transfers.reason(world))
