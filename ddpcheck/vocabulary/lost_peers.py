"""Which errors are what a rank feels when another one is lost, not a failure of its own."""

from __future__ import annotations

import re
import sys

# What gloo, the stores and NCCL say when a peer has gone or does not come.
_LOST_PEER = re.compile(
    r"gloo[/\\]transport"
    r"|Connection (closed|reset|refused)"
    r"|Broken pipe"
    r"|Timed out waiting \d+ms for (recv|send)"
    r"|Application timeout caused pair closure"
    r"|NCCL communicator was aborted"
    r"|remote process exited or there was a network error"
    r"|wait timeout after"
    # The default NCCL backend from torch 2.15 on, which raises nothing but RuntimeError.
    r"|NCCL [\w ]+ failed: |Failed to initialize NCCL communicator: |NCCL operation (failed|timed out)"
    r"|^Operation timed out after "
)

# What NCCL says of a failure in the process itself; torch has the same class for these as for what another rank does.
_OWN = re.compile(
    r"ncclInvalidUsage|ncclInvalidArgument|ncclUnhandledCudaError"
    r"|[,:] (invalid usage|invalid argument|unhandled cuda error)\b"
    r"|out of memory|No space left on device"
    r"|Attempt to perform collective on tensor not on device"
)


def is_reaction(error: BaseException) -> bool:
    """Whether ``error`` tells of a lost or late peer, raised by torch.distributed.

    Such a failure is the root cause only if no rank has another.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(error, RuntimeError):
        return False
    dist_error = getattr(torch.distributed, "DistError", None)
    if dist_error is not None and isinstance(error, dist_error):
        backend_error = getattr(torch.distributed, "DistBackendError", ())
        return not (isinstance(error, backend_error) and _OWN.search(str(error)))
    return type(error) is RuntimeError and _LOST_PEER.search(str(error)) is not None and not _OWN.search(str(error))
