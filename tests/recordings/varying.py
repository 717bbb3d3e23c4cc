"""What differs from run to run of one program: by program, then by check, rule or ``verdict``, the reason."""

ONE_MEMORY = "both ranks write to one memory, and may read a tensor before or after the other has written"

VARYING: dict[str, dict[str, str]] = {
    "corpus/a08_module_from_parent --fault": {
        "gradient-sync": ONE_MEMORY,
        "initial-broadcast": ONE_MEMORY,
    },
}
