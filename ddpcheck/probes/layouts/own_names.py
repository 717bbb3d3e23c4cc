"""The names that tensors have in the program's own modules."""

from __future__ import annotations

_WRAPPERS = ("_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "_orig_mod.")


def own_name(name: str) -> str:
    """The name that a tensor has in the program's own module, whatever has been wrapped around parts of it."""
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name
