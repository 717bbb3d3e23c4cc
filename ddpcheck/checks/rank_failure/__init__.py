"""``rank-failure``: see explanation.md beside this file."""

from __future__ import annotations

from ddpcheck.checks.check import ORIGINS, Check, Rule

CHECK = Check(
    holds="no rank fails; when one does, it is named as the root cause",
    order=140,
    unit="rank",
    rules=(
        Rule("failed-rank", "a rank raises an exception, is killed, or exits early"),
        Rule("lost-connection", "a rank loses its connection to the others"),
        Rule("group-timeout-exceeded", "a rank gives up waiting for others that are busy elsewhere"),
        Rule("failed-training", "fit(job) does not return on every rank"),
        Rule("unsupported-on-some-ranks", "some ranks raise NotSupported, and others do not"),
        Rule("swallowed-exception", "fit(job) returns on a rank where job.loss raised"),
        Rule("hang-after-exception", "a rank hangs after job.loss raised there"),
        Rule("replaced-exception", "a rank ends without the message of the exception that job.loss raised"),
        Rule("peers-return-normally", "fit(job) returns on other ranks as if no rank had failed"),
        Rule("uncaught-exception", "a process outside of a process group raises an exception"),
        Rule("error-exit", "a process ends with an error, and no exception is on record"),
        Rule("launcher-killed", "a signal kills the process that started the ranks"),
        Rule("failed-user-function", "a function that was given to an assertion raises an error"),
    ),
    follows=(*ORIGINS, "device-placement", "checkpoint-single-writer", "shard-partition"),
    rests_on=("ends of processes",),
    of_endings=True,
    stops=True,
)
