"""``process-hygiene``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import Check, Rule

CHECK = Check(
    holds="groups are destroyed, and no process, thread, port or shared-memory parameter is left",
    order=50,
    unit="rank",
    rules=(
        Rule("port-in-use", "the port at which the ranks meet is in use"),
        Rule("parameters-in-shared-memory", "parameters of several ranks lie in the same memory"),
        Rule("undestroyed-process-group", "a process group still exists when the program ends"),
        Rule("running-threads", "a thread is still running when its rank ends"),
        Rule("running-processes", "a child process is still running when its rank ends"),
        Rule("running-after-fit", "a thread or process is still running when fit(job) has returned"),
    ),
    rests_on=("groups", "wrappers", "leaving", "what is left"),
    of_endings=True,
)
