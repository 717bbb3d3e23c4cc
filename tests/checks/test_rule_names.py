"""Every finding names its rule, and every check lists the rules that its findings can have.

Read from the syntax trees of the package: no judge has to find anything for that.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import ddpcheck
from ddpcheck.checks.check import Rule
from ddpcheck.checks.registry import checks
from ddpcheck.conformance import adapter_check

PACKAGE = Path(ddpcheck.__file__).parent
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
LONGEST = 100
"""Characters of what a rule says."""
TABLE = re.compile(r"_?([A-Z]+_)*RULES?")
"""The names of tables of rules, from which a finding takes one."""


class Use(NamedTuple):
    """A rule that a call is given by its name."""

    place: str
    rule: str
    check: str
    """The check's id, where the call or its folder tells it; else empty."""


@cache
def _modules() -> dict[Path, ast.Module]:
    """The syntax trees of the package, but for the vocabulary, in which findings are made over from others."""
    paths = sorted(path for path in PACKAGE.rglob("*.py") if "vocabulary" not in path.relative_to(PACKAGE).parts)
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def _place(path: Path, node: ast.expr) -> str:
    return f"{path.relative_to(PACKAGE.parent)}:{node.lineno}"


@cache
def _calls() -> list[tuple[Path, ast.Call]]:
    return [(path, node) for path, tree in _modules().items() for node in ast.walk(tree) if isinstance(node, ast.Call)]


def _is(call: ast.Call, name: str) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == name


def _given(call: ast.Call, keyword: str) -> ast.expr | None:
    return next((one.value for one in call.keywords if one.arg == keyword), None)


def _texts(value: ast.expr | None) -> list[str]:
    """The texts that an expression can be, as far as it says so itself."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return [value.value]
    if isinstance(value, ast.IfExp):
        return [*_texts(value.body), *_texts(value.orelse)]
    return []


def _check_of(path: Path, call: ast.Call) -> str:
    """The id of the check whose rule a call names; empty where it is not known from here."""
    given = _given(call, "check")
    positional = [text for one in call.args for text in _texts(one) if text in checks()]
    if given is not None or positional:
        named = [*_texts(given), *positional]
        return named[0] if len(named) == 1 else ""
    return _check_of_module(path)


def _check_of_module(path: Path) -> str:
    """That of its folder, or what the module calls CHECK."""
    if path.parent.parent == PACKAGE / "checks":
        return path.parent.name.replace("_", "-")
    assigned = [one for one in _modules()[path].body if isinstance(one, ast.Assign)]
    found = [one.value for one in assigned if isinstance(one.targets[0], ast.Name) and one.targets[0].id == "CHECK"]
    return "".join(_texts(found[0])) if found else ""


def _uses() -> Iterator[Use]:
    """The rules that calls are given, and those in the tables of a module."""
    for path, call in _calls():
        for rule in filter(None, _texts(_given(call, "rule"))):  # an empty one stands for the whole check
            yield Use(_place(path, call), rule, _check_of(path, call))
    for path, tree in _modules().items():
        for statement in tree.body:
            for rule in _in_table(statement):
                yield Use(str(path.relative_to(PACKAGE.parent)), rule, _check_of_module(path))


def _in_table(statement: ast.stmt) -> list[str]:
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    target = statement.target if isinstance(statement, ast.AnnAssign) else target
    value = statement.value if isinstance(statement, (ast.Assign, ast.AnnAssign)) else None
    if not isinstance(target, ast.Name) or TABLE.fullmatch(target.id) is None or not isinstance(value, ast.Dict):
        return []
    return [text for one in value.values for text in _texts(one)]


@cache
def _literals() -> frozenset[str]:
    """All texts of the package, but for those in the lists of rules themselves."""
    found: set[str] = set()
    for tree in _modules().values():
        lists = {id(arg) for node in ast.walk(tree) if isinstance(node, ast.Call) and _is(node, "Rule")
                 for arg in node.args}  # fmt: skip
        found.update(
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in lists
        )
    return frozenset(found)


def test_every_finding_is_given_a_rule():
    without = [_place(path, call) for path, call in _calls() if _is(call, "Finding") and _given(call, "rule") is None]
    assert without == []


def test_some_rules_are_found():
    uses = [*_uses()]
    assert len(uses) > 100
    assert {use.check for use in uses} >= {"accumulation-window", "gradient-sync", "initial-values"}
    assert "conflicting-weights" in {use.rule for use in uses}, "tables of rules are read, too"


def _rules() -> dict[str, tuple[Rule, ...]]:
    """By check; the adapter's, too, which is no check of the registry."""
    return {**{name: check.rules for name, check in checks().items()}, adapter_check.CHECK: adapter_check.RULES}


def test_every_rule_that_is_used_is_listed_by_its_check():
    listed = {name: {rule.name for rule in rules} for name, rules in _rules().items()}
    every = set().union(*listed.values())
    unlisted = [use for use in _uses() if use.rule not in (listed[use.check] if use.check else every)]
    assert unlisted == []


def test_every_check_with_assertions_lists_what_can_be_wrong_with_the_calls_of_any():
    shared = {use.rule for use in _uses() if "assertion_exchange.py" in use.place}
    asserted = {name: {rule.name for rule in check.rules} for name, check in checks().items() if check.assertions}
    assert shared
    assert [name for name, rules in asserted.items() if not shared <= rules] == []


def test_every_rule_that_is_listed_is_used():
    unused = [f"{name}/{rule.name}" for name, rules in _rules().items() for rule in rules
              if rule.name not in _literals()]  # fmt: skip
    assert unused == []


def test_every_check_lists_rules_once_each():
    assert [name for name, check in checks().items() if not check.rules] == []
    twice = [
        (name, rule)
        for name, rules in _rules().items()
        for rule, times in Counter(one.name for one in rules).items()
        if times > 1
    ]
    assert twice == []


def test_names_are_words_with_hyphens():
    names = {rule.name for rules in _rules().values() for rule in rules} | {use.rule for use in _uses()}
    assert [name for name in sorted(names) if NAME.fullmatch(name) is None] == []


def test_what_a_rule_says_is_one_short_clause():
    rules = [(name, rule) for name, of_check in _rules().items() for rule in of_check]
    wrong = [
        f"{name}/{rule.name}: {rule.says}"
        for name, rule in rules
        if not rule.says or len(rule.says) > LONGEST or rule.says.endswith(".") or ". " in rule.says
    ]
    assert wrong == []
