"""The variables of the environment that change what CUDA, NCCL and torch do, and what is not for other eyes in them.

python -m tests.gpu.variables
"""

from __future__ import annotations

import math
import os
import re
import socket
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

WANTED = ("CUDA_", "NCCL_", "TORCH_", "PYTORCH_", "OMP_")
NAMED = ("LD_PRELOAD", "LD_LIBRARY_PATH", "CUBLAS_WORKSPACE_CONFIG", "NVIDIA_VISIBLE_DEVICES", "MKL_NUM_THREADS")

MASKED = "(masked)"

_SECRET_NAMES = re.compile(
    r"(?i)(^|_)(token|secret|passw(or)?d|passphrase|pass|pwd|credentials?|auth(orization)?|api_?key|access_?key"
    r"|private_?key|key|signature|cookie|session|dsn)(_|$)"
)
_SECRETS = re.compile(
    r"(?x) (?P<before>://[^/\s:@]*:)[^/\s@]+(?=@)"  # the password of an address
    r"| -----BEGIN [A-Z ]*PRIVATE\ KEY-----.*"
    r"| \b(?:gh[pousr]_|github_pat_|glpat-|hf_|sk-|xox[abpr]-|AKIA|ASIA|AIza|ya29\.|eyJ|npm_|pypi-|dckr_pat_)"
    r"[\w.\-]{8,}"
    r"| (?P<bearer>\b(?:Bearer|Basic)\s+)[\w.~+/=\-]{8,}"
    r"| (?P<query>[?&](?:token|key|sig|signature|password|secret|auth|access_token|X-Amz-[\w-]+)=)[^&\s]+"
)
_WORD = re.compile(r"[A-Za-z0-9+=_\-]{20,}")
_GPU = re.compile(r"(?:GPU|MIG)-[0-9a-fA-F\-]{36}(?:/\d+)*")


def told(environment: Mapping[str, str]) -> list[str]:
    """A line for each that counts here, by name, without what looks secret."""
    return [
        f"{name}={MASKED if _SECRET_NAMES.search(name) else masked(value, words=True)}"
        for name, value in sorted(environment.items())
        if name.startswith(WANTED) or name in NAMED
    ]


def masked(text: str, words: bool = False) -> str:
    """A text without what looks like a secret; with ``words``, also without what looks as if it were drawn at random.

    Folders below the user's home begin with ``~``, and the machine has no name.
    """
    text = _SECRETS.sub(lambda found: (found["before"] or found["bearer"] or found["query"] or "") + MASKED, text)
    if words:
        kept = {found.group() for found in _GPU.finditer(text)}
        text = _WORD.sub(lambda found: _unless_random(found.group(), kept), text)
    home = str(Path.home())
    if home.count("/") > 1:  # /root says nothing of anybody
        text = re.sub(re.escape(home) + r"(?![\w.-])", "~", text)
    host = socket.gethostname()
    # Nor has a file of evidence, which is called HOST-PID-TIME.
    own = rf"(?<![\w.-]){re.escape(host)}(?!\w|-(?!\d+-\d+\b))"
    return re.sub(own, "(host)", text) if len(host) > 3 else text


def _unless_random(word: str, kept: set[str]) -> str:
    """Names and flags have few kinds of characters, and repeat them; keys have all, about as often."""
    if any(word in one for one in kept):
        return word
    kinds = sum(bool(re.search(kind, word)) for kind in ("[a-z]", "[A-Z]", "[0-9]"))
    entropy = -sum(n / len(word) * math.log2(n / len(word)) for n in Counter(word).values())
    is_hex = re.fullmatch(r"[0-9a-fA-F]{32,}", word) is not None
    return MASKED if is_hex or (kinds == 3 and entropy > 3.8) else word


if __name__ == "__main__":
    print("\n".join(told(os.environ)))
