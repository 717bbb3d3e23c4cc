"""The judge of placement in a test, over whereabouts written by hand."""

from __future__ import annotations

import msgspec
import pytest

from ddpcheck.evidence.placement import StateTensor, Whereabouts
from tests.judging.judged import asserted


def gpu(*indices):
    return [f"cuda:{i}" for i in indices]


def rank(number, own=None, model=None, **more):
    """One rank's whereabouts: by default on the GPU of its number, of eight, with a model of one layer there."""
    own = gpu(number) if own is None else own
    model = {"weight": own[0], "bias": own[-1]} if model is None else model
    facts = {"local_rank": number, "given": own[0], "visible": 8, "current": own[0], **more}
    return Whereabouts(own=own, model=model, **facts)


def pair(number, first, second, **more):
    """A rank of the two-device model, whose layers are on these."""
    model = {"hidden.weight": first, "hidden.bias": first, "output.weight": second, "output.bias": second}
    more = {"stated": "devices_per_rank=2", "given": "cpu"} | more
    return rank(number, own=gpu(2 * number, 2 * number + 1), model=model, **more)


def ask(*ranks):
    """The findings, given the facts as they come off the wire."""
    return asserted("device-placement", [msgspec.to_builtins(one) for one in ranks])


def error(*ranks):
    """The only finding, which is an error."""
    (finding,) = ask(*ranks)
    assert (finding.check, finding.severity) == ("device-placement", "error")
    assert finding.advice.endswith(".")
    return finding


# --- what holds


@pytest.mark.parametrize("world_size", [1, 2, 4, 8])
def test_each_rank_on_its_own_gpu_holds(world_size):
    """The model of every rank on the device of its local rank is silent."""
    assert ask(*[rank(r) for r in range(world_size)]) == ()


def test_the_cpu_holds():
    """Ranks share the CPU, and nothing is wrong with that."""
    assert ask(*[rank(r, own=["cpu"], visible=None, current="") for r in range(4)]) == ()


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_two_devices_in_each_rank_hold(world_size):
    """Devices 2r and 2r + 1 keep the ranks apart."""
    assert ask(*[pair(r, f"cuda:{2 * r}", f"cuda:{2 * r + 1}") for r in range(world_size)]) == ()


# --- nothing to judge


def test_an_empty_model_does_not_pass():
    """A model without tensors shows nothing, and says so."""
    finding = error(rank(0, model={}), rank(1, model={}))
    assert finding.ranks == (0, 1)
    assert finding.found == "no tensor in it on any rank: nothing was checked"


def test_an_empty_model_with_outputs_is_judged_by_them():
    """A module without parameters is judged by what comes out of it."""
    assert ask(*[rank(r, model={}, batch={"outputs": {"outputs": f"cuda:{r}"}}) for r in range(2)]) == ()
    assert error(*[rank(r, model={}, batch={"outputs": {"outputs": "cpu"}}) for r in range(2)]).ranks == (0, 1)


def test_arguments_that_say_nothing_are_told_on_every_rank():
    """What one rank could not make out is a finding for all, with that rank's words."""
    finding = error(rank(0), Whereabouts(local_rank=1, own=[], wrong="devices that name none"))
    assert (finding.ranks, finding.found) == ((1,), "devices that name none on rank 1")


@pytest.mark.parametrize(("visible", "there", "first"), [
    (0, "no GPU", 0), (1, "1 GPU (cuda:0)", 0), (6, "6 GPUs (cuda:0 to cuda:5)", 3),
])  # fmt: skip
def test_devices_that_do_not_exist(visible, there, first):
    """A device beyond those of the machine is told by number, and only that: nothing else could be judged."""
    ranks = [pair(r, f"cuda:{2 * r}", f"cuda:{2 * r + 1}", visible=visible) for r in range(4)]
    finding = error(*ranks)
    assert finding.ranks == tuple(range(first, 4))
    assert f"cuda:6, cuda:7, where it sees {there}" in finding.found
    assert finding.cause == "devices_per_rank=2 takes more GPUs than there are"


def test_a_global_rank_beyond_the_devices_of_its_machine():
    """Two machines with two GPUs each: the index that is too large is the global rank."""
    ranks = [rank(r, local_rank=r % 2, visible=2, host=f"node{r // 2}", current="") for r in range(4)]
    finding = error(*ranks)
    assert finding.ranks == (2, 3)
    assert "global rank" in finding.cause


def test_more_ranks_than_gpus():
    """Without another mistake there is no cause to tell: there are too few."""
    finding = error(*[rank(r, visible=1, current="cuda:0") for r in range(2)])
    assert (finding.ranks, finding.cause) == ((1,), "")


# --- the model elsewhere


def test_a_model_that_was_never_moved():
    """Everything on the CPU, on all ranks or on one."""
    finding = error(*[rank(r, model={"weight": "cpu", "bias": "cpu"}) for r in range(2)])
    assert finding.cause == "the model was never moved to the rank's device"
    assert finding.expected.endswith("cuda:0 on rank 0, cuda:1 on rank 1")
    assert finding.found == "2 of 2 tensors elsewhere: weight, bias on cpu on ranks 0 and 1"
    finding = error(rank(0), rank(1, model={"weight": "cpu", "bias": "cpu"}))
    assert (finding.ranks, finding.count) == ((1,), 2)
    assert finding.cause.endswith("device on these ranks")


def test_a_submodule_that_was_forgotten():
    """The part that is on the CPU is named by what its tensors have in common."""
    models = [{"a.weight": d, "b.out.weight": "cpu", "b.out.bias": "cpu"} for d in gpu(0, 1)]
    finding = error(*[rank(r, model=m) for r, m in enumerate(models)])
    assert finding.subject == "b.out.weight"
    assert finding.cause.startswith("the module b.out was added or replaced")


def test_a_buffer_that_was_forgotten():
    """Buffers alone are told as buffers."""
    finding = error(*[rank(r, model={"weight": f"cuda:{r}", "mask (buffer)": "cpu"}) for r in range(2)])
    assert finding.subject == "mask (buffer)"
    assert finding.cause.startswith("buffers that were registered or replaced")


def test_the_meta_device_is_no_place():
    """A model without memory is reported as such."""
    finding = error(*[rank(r, model={"weight": "meta"}) for r in range(2)])
    assert "never given memory" in finding.cause


def test_gpus_in_a_test_of_the_cpu():
    """Where the mark gives the ranks the CPU, a model on GPUs is told with both ways out."""
    finding = error(*[rank(r, own=["cpu"], model={"weight": f"cuda:{r}"}) for r in range(2)])
    assert "gives the ranks the CPU" in finding.cause
    assert "devices_per_rank=1" in finding.advice


@pytest.mark.parametrize(("index_of", "own_of", "ranks", "cause"), [
    (lambda r: 0, lambda r: r, (1, 2, 3), "cuda:0 was taken by default"),
    (lambda r: 3, lambda r: r, (0, 1, 2), "the index of the device is fixed: every rank took cuda:3"),
    (lambda r: r, lambda r: r % 2, (2, 3), "the global rank was used as the index of the device"),
    (lambda r: r + 1, lambda r: r, (0, 1, 2, 3), "off by one: each is one too high"),
    (lambda r: r, lambda r: r + 2, (0, 1, 2, 3), "the global rank was used"),
    (lambda r: 2 * r % 5, lambda r: r, (1, 2, 3), "not chosen by the local rank"),
])  # fmt: skip
def test_the_likely_cause_of_another_gpu(index_of, own_of, ranks, cause):
    """Each pattern of wrong indices is told as the mistake that makes it."""
    facts = [
        rank(r, own=gpu(own_of(r)), model={"weight": f"cuda:{index_of(r)}"}, sharing=True, local_rank=own_of(r))
        for r in range(4)
    ]
    finding = error(*facts)
    assert finding.ranks == ranks
    assert cause in finding.cause
    assert "local rank" in finding.advice


@pytest.mark.parametrize(("pair_of", "ranks", "cause"), [
    (lambda r: (r, r + 1), (1, 2, 3), "rank r took the devices r to r+1, where it has 2*r to 2*r+1"),
    (lambda r: (2 * r + 1, 2 * r + 2), (0, 1, 2, 3), "off by one: each is one too high"),
    (lambda r: (r, r), (1, 2, 3), "the whole model is on the device with the number of its rank, where a rank has 2"),
    (lambda r: (0, 1), (1, 2, 3), "not chosen by the local rank"),
])  # fmt: skip
def test_the_likely_cause_with_two_devices_in_each_rank(pair_of, ranks, cause):
    """So are the mistakes with several devices in a rank."""
    facts = [pair(r, *gpu(*pair_of(r)), visible=9) for r in range(4)]
    finding = error(*facts)
    assert finding.ranks == ranks
    assert cause in finding.cause


def test_a_gpu_that_is_shared_for_that_reason_is_told_along():
    """Overlapping devices are one finding, with who shares what."""
    finding = error(*[pair(r, f"cuda:{r}", f"cuda:{r + 1}") for r in range(3)])
    assert finding.found.endswith("; so cuda:1 is shared by ranks 0 and 1; cuda:2 is shared by ranks 1 and 2")


# --- shared GPUs


def overlapping(**more):
    own = [gpu(0, 1), gpu(1, 2)]
    return [
        rank(r, own=own[r], model={"a": own[r][0], "b": own[r][1]}, stated="`devices`", given="cpu", **more)
        for r in range(2)
    ]


def test_stated_devices_that_overlap():
    """Two ranks that are both said to have a GPU, and use it."""
    finding = error(*overlapping())
    assert finding.ranks == (0, 1)
    assert (finding.subject, finding.found) == ("cuda:1", "cuda:1 used by ranks 0 and 1")
    assert finding.cause == "what `devices` gives to the ranks overlaps"
    assert "sharing=True" in finding.advice


def test_sharing_on_purpose_is_silent():
    """The caller may say so; and a GPU that the runtime has given to both is shared on purpose."""
    assert ask(*overlapping(sharing=True)) == ()
    assert ask(*[rank(r, own=["cuda:0"]) for r in range(2)]) == ()


def test_a_gpu_that_was_given_to_one_rank_alone():
    """That the runtime gave each rank a GPU does not excuse a program that takes one for both."""
    finding = error(*[rank(r, own=["cuda:0"], given=f"cuda:{r}", stated="`devices`") for r in range(2)])
    assert finding.ranks == (0, 1)
    assert finding.cause == "what `devices` gives to the ranks overlaps"


def test_ranks_of_two_machines_share_nothing():
    """The same number on another machine is another GPU."""
    one, two = overlapping(host="a")[0], overlapping(host="b")[1]
    assert ask(one, two) == ()


def test_what_names_the_gpu_itself_decides():
    """Each rank may call a GPU of its own number 0; and one GPU may have two numbers."""
    apart = [rank(r, own=["cuda:0"], given="cpu", hardware={"cuda:0": f"GPU-{r}"}) for r in range(2)]
    assert ask(*apart) == ()
    together = [rank(r, given="cpu", hardware={f"cuda:{r}": "GPU-a"}) for r in range(2)]
    finding = error(*together)
    assert finding.found == "cuda:0 and cuda:1 (GPU-a) used by ranks 0 and 1"
    assert "CUDA_VISIBLE_DEVICES overlap" in finding.cause
    finding = error(*[rank(r, own=["cuda:0"], given="cpu", hardware={"cuda:0": "GPU-a"}) for r in range(2)])
    assert finding.found == "cuda:0 (GPU-a) used by ranks 0 and 1"
    assert finding.cause == "the device is not chosen by the local rank"


# --- DDP's device_ids


@pytest.mark.parametrize(("device_ids", "output_device", "places", "fits"), [
    ([0], 0, gpu(0, 0), True),
    (None, None, gpu(0, 0), True),
    ([1], 1, gpu(0, 0), False),
    ([0], 1, gpu(0, 0), False),
    ([0], 0, gpu(0, 1), False),
    (None, None, gpu(0, 1), True),
])  # fmt: skip
def test_device_ids_fit_the_module(device_ids, output_device, places, fits):
    """They name the one GPU that the module is on, or are not given."""
    facts = rank(0, own=gpu(0, 1), model=dict(zip("ab", places, strict=True)))
    facts = msgspec.structs.replace(facts, device_ids=device_ids, output_device=output_device)
    if fits:
        assert ask(facts) == ()
    else:
        finding = error(facts)
        assert finding.subject == "device_ids of DistributedDataParallel"
        assert f"device_ids {device_ids}" in finding.found
        assert ("output_device" in finding.found) == (device_ids != [output_device])
        assert finding.cause.startswith("a part of" if len(set(places)) > 1 else "the module was moved")


# --- what goes in and comes out


def batched(kind, device, **more):
    return [rank(r, batch={kind: {kind: device.format(r=r)}}, **more) for r in range(2)]


@pytest.mark.parametrize(("kind", "device", "cause"), [
    ("inputs", "cpu", "was not moved"),
    ("inputs", "cuda:7", "another device"),
    ("targets", "cpu", "was not moved"),
    ("targets", "cuda:0", "another device"),
    ("outputs", "cpu", "before they were handed back"),
])  # fmt: skip
def test_a_batch_elsewhere(kind, device, cause):
    """Inputs, targets and outputs belong with the model; each is told with the device where it is wanted."""
    finding = error(*batched(kind, device))
    assert finding.subject == kind
    assert finding.found.startswith(f"{kind} on {device} on rank")
    assert "cuda:1 on rank 1" in finding.expected
    assert cause in finding.cause
    assert kind in finding.advice.lower()


@pytest.mark.parametrize("kind", ["inputs", "targets", "outputs"])
def test_a_batch_with_the_model_holds(kind):
    """On the model's device all three are silent."""
    assert ask(*batched(kind, "cuda:{r}")) == ()


def test_inputs_that_every_rank_moved_to_the_first_gpu():
    """All ranks' inputs on cuda:0 are told as the default device."""
    finding = error(*[rank(r, own=gpu(r + 1), batch={"inputs": {"inputs": "cuda:0"}}) for r in range(2)])
    assert "no torch.cuda.set_device before" in finding.cause


def test_ddp_moves_inputs_for_device_ids():
    """With device_ids, inputs may come from the CPU; from another rank's GPU they may not."""
    ids = [rank(r, batch={"inputs": {"inputs": "cpu"}}, device_ids=[r]) for r in range(2)]
    assert ask(*ids) == ()
    ids[1] = msgspec.structs.replace(ids[1], batch={"inputs": {"inputs": "cuda:0"}})
    assert error(*ids).ranks == (1,)


def test_a_model_on_several_devices_takes_its_inputs_there_itself():
    """Inputs from the CPU are silent; outputs and targets belong on the last device."""

    def facts(**batch):
        return [
            pair(r, f"cuda:{2 * r}", f"cuda:{2 * r + 1}", batch={k: {k: d[r]} for k, d in batch.items()})
            for r in range(2)
        ]

    assert ask(*facts(inputs=["cpu", "cpu"])) == ()
    assert ask(*facts(outputs=gpu(1, 3), targets=gpu(1, 3))) == ()
    finding = error(*facts(outputs=gpu(1, 3), targets=gpu(0, 2)))
    assert finding.subject == "targets"
    assert finding.cause.startswith("they are where the model begins")
    assert error(*facts(outputs=gpu(0, 2))).expected.endswith("cuda:1 on rank 0, cuda:3 on rank 1")


@pytest.mark.parametrize(("order", "last"), [((0, 1), 1), ((0, 1, 0), 0), ((0, 1, 2), 1), ((), 0)])
def test_the_stated_order_says_where_the_model_ends(order, last):
    """A head that is registered first is still the end; without an order, the parameter that is registered last is."""

    def facts(device):
        model = {"head.weight": "cuda:1", "body.weight": "cuda:0"}
        batch = {"outputs": {"outputs": f"cuda:{device}"}}
        return rank(0, own=gpu(0, 1, 2), model=model, order=gpu(*order), batch=batch)

    assert ask(facts(last)) == ()
    finding = error(facts(1 - last))
    assert finding.expected.endswith(f"cuda:{last} on rank 0")
    assert ("list `devices` in the order of its way" in finding.advice) == (order == ())


# --- what goes along


def test_optimizer_state_elsewhere():
    """A moment that is not with its parameter is named with both devices."""

    def facts(device):
        state = StateTensor(name="exp_avg of weight", device=device, wanted="cuda:0")
        return rank(0, state=[state])

    assert ask(facts("cuda:0")) == ()
    finding = error(facts("cpu"))
    assert finding.subject == "exp_avg of weight"
    assert finding.found == "exp_avg of weight on cpu on rank 0"
    assert "load_state_dict" in finding.advice


def test_what_is_left_on_another_ranks_gpu():
    """Tensors beside the model, on a GPU that belongs to another rank; one that belongs to none is nobody's matter."""
    left = {"cuda:0": "2 tensors (float32[4], …)"}
    finding = error(rank(0), rank(1, left=left))
    assert finding.ranks == (1,)
    assert finding.found == "2 tensors (float32[4], …) on cuda:0 on rank 1; cuda:0 is rank 0's"
    assert finding.cause.startswith("made while cuda:0 was still the current device")
    finding = error(rank(0, left={"cuda:1": "1 tensor (float32[4])"}), rank(1))
    assert finding.cause == "loaded without map_location, or made with a fixed index"
    assert ask(rank(0), rank(1, left={"cuda:5": "1 tensor (float32[4])"})) == ()
    assert ask(rank(0, sharing=True), rank(1, left=left, sharing=True)) == ()


def test_what_is_left_is_known_by_what_names_the_gpu():
    """Each rank's own GPU is its number 0, and another rank's its number 1."""
    names = [{"cuda:0": "a", "cuda:1": "b"}, {"cuda:0": "b", "cuda:1": "a"}]
    ranks = [rank(r, own=["cuda:0"], given="cpu", hardware=names[r]) for r in range(2)]
    assert ask(*ranks) == ()
    ranks[1] = msgspec.structs.replace(ranks[1], left={"cuda:1": "1 tensor (float32[4])"})
    assert error(*ranks).found.endswith("on cuda:1 on rank 1; cuda:1 is rank 0's")


def test_the_current_device_is_a_warning():
    """Right by luck: nothing is elsewhere, and the next `cuda` without an index will be."""
    (finding,) = ask(rank(0), rank(1, current="cuda:0"))
    assert (finding.severity, finding.ranks) == ("warning", (1,))
    assert "set_device" in finding.advice
    assert ask(*[rank(r, own=["cpu"], current="cuda:0", visible=8) for r in range(2)]) == ()


def test_one_mistake_is_one_finding():
    """What follows from a model that is elsewhere (its state, its outputs, what it shares) is not told again."""
    batch = {"outputs": {"outputs": "cuda:0"}}
    state = [StateTensor(name="exp_avg of weight", device="cpu", wanted="cuda:0")]
    assert len(ask(rank(0), rank(1, model={"weight": "cuda:0"}, batch=batch, state=state))) == 1
