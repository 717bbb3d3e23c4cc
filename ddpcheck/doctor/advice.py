"""What to do about a self-test that failed, by what it said."""

from __future__ import annotations

_KNOWN = (
    ("No module named 'torch'", "Install torch in this environment: ddpcheck looks at the one that is there."),
    ("No module named", "A package is missing: install ddpcheck with its dependencies in this environment."),
    ("import torch\n", "torch cannot be imported here: reinstall it, in a build that fits this machine."),
    (
        "from that of one process",
        "The reduction itself is wrong: reinstall torch, and report it there if that is no help.",
    ),
    (
        "-sync violated",
        "The ranks did not agree after a reduction: reinstall torch, and report it there if that is no help.",
    ),
    ("-broadcast violated", "The ranks did not agree after a broadcast: reinstall torch, and report it there."),
    (
        "SIGKILL",
        "Something outside ended a rank, mostly for want of memory: free some, or raise the container's limit.",
    ),
    ("SIGBUS", "Shared memory ran out: enlarge /dev/shm (docker run --shm-size=1g)."),
    ("SIGILL", "This build of torch uses instructions that the processor lacks: install another build."),
    ("SIGSEGV", "Native code crashed: install another build or version of torch."),
    ("Too many open files", "Raise the number of file descriptors: ulimit -n 4096."),
    ("CUDA", "Compare the driver with what this build of torch needs (nvidia-smi), and see who else uses the GPU."),
    ("NCCL", "Run with NCCL_DEBUG=INFO to see what NCCL tried."),
    ("importing torch", "A slow disk needs longer to read torch: ddpcheck doctor --timeout 300."),
    (
        "did not end within",
        "See where it stood, above; a slow machine needs longer: ddpcheck doctor --timeout 300.",
    ),
    (
        "timed out",
        "See where the ranks stood, above; look for a firewall or a sandbox that closes the loopback interface.",
    ),
    ("ould not start", "See above why no process group came to be; ranks meet over the loopback interface and a file."),
    (
        "Connection",
        "See that nothing closes the loopback interface: a firewall, a sandbox, a container without network.",
    ),
    ("ddpcheck itself failed", "Please report this, with the output of `ddpcheck doctor --json FILE`."),
)


def advice_for(text: str) -> str:
    """A sentence that says what to do."""
    for words, advice in _KNOWN:
        if words in text:
            return advice
    return (
        "See the whole text in the file of `ddpcheck doctor --json FILE`; report it if it is not the machine's fault."
    )
