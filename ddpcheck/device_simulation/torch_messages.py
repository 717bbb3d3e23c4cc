"""torch's own words for a tensor on the wrong device, as the installed version says them."""

from __future__ import annotations

NO_BACKEND = "No backend type associated with device type cpu"
"""What a process group of NCCL says of a tensor on the CPU."""


def mismatch(version: tuple[int, int], common: str, argument: str, found: str, method: str) -> str:
    """What the check in front of a CUDA kernel says of an argument that is not where those before it are."""
    if version >= (2, 8):
        return (
            f"Expected all tensors to be on the same device, but got {argument} is on {found}, different from other "
            f"tensors on {common} (when checking argument in method {method})"
        )
    return (
        f"Expected all tensors to be on the same device, but found at least two devices, {common} and {found}! "
        f"(when checking argument for argument {argument} in method {method})"
    )


def mismatch_of_operands(common: str, found: str) -> str:
    """What an elementwise operation says of its operands."""
    return f"Expected all tensors to be on the same device, but found at least two devices, {common} and {found}!"


def invalid_ordinal(version: tuple[int, int]) -> str:
    """What CUDA says where a device does not exist."""
    help_with_it = ""
    if version >= (2, 9):
        help_with_it = (
            "\nGPU device may be out of range, do you have enough GPUs?\nSearch for `cudaErrorInvalidDevice' in "
            "https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html for more information."
        )
    return (
        f"CUDA error: invalid device ordinal{help_with_it}\n"
        "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be "
        "incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
        "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
    )


def not_for_numpy(device: str) -> str:
    """What ``numpy()`` says of a tensor on a GPU."""
    return (
        f"can't convert {device} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first."
    )


def wrong_gradient(gradient: str, tensor: str) -> str:
    """What assigning to ``.grad`` says of a tensor on another device."""
    same = "'. Please ensure that the gradient and the tensor are on the same device"
    (its_type, _, its_index), (type_there, _, index_there) = gradient.partition(":"), tensor.partition(":")
    if its_type != type_there:
        return (
            f"attempting to assign a gradient with device type '{its_type}' "
            f"to a tensor with device type '{type_there}{same}"
        )
    return (
        f"attempting to assign a gradient located on device with index '{its_index}' "
        f"to a tensor located on device with index '{index_there}{same}"
    )


def wrong_hidden(kind: str, given: str, other: str) -> str:
    """What a recurrent layer says of weights or a hidden state that are not where its input is."""
    return (
        f"Input and {kind} tensors are not at the same device, found input tensor at {given} "
        f"and {kind} tensor at {other}"
    )


def wrong_convolution(kind: str, given: str, other: str, with_advice: bool) -> str:
    """What a convolution says of weights on another kind of device than its input."""
    advice = f" or input should be a MKLDNN tensor and {kind} is a dense tensor" if with_advice else ""
    return f"Input type ({given}) and {kind} type ({other}) should be the same{advice}"


def invalid_gradient(function: str, position: int, expected: str, found: str) -> str:
    """What autograd says of a gradient that is not where its tensor is; ``function`` says whose it is."""
    return f"{function}invalid gradient at index {position} - expected device {expected} but got {found}"


def wrong_generator(wanted: str, given: str) -> str:
    """What a random operation says of a generator of another kind of device."""
    return f"Expected a '{wanted}' device type for generator but found '{given}'"
