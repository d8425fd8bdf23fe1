"""A validation's report, for people and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from deltastore.cli.wording import plain, plural, size
from deltastore.validate import CHECKS, Check, Conduct, Level, Problem, Report

__all__ = ["check_lines", "facts_of", "problem_line", "report_lines"]

_CONDUCT: Final = {
    Conduct.STORE: "conduct of the store",
    Conduct.WRITER: "conduct of writers",
    Conduct.READER: "conduct of readers",
    Conduct.EXCHANGE: "no part of a stream",
}
"""Of what stored bytes cannot show."""


def facts_of(report: Report) -> dict[str, Any]:
    """The report for JSON; ``error`` is there exactly when something is wrong, as with every command.

    It is the first problem of the kind that the exit status says.
    """
    facts: dict[str, Any] = {
        "ok": report.ok,
        "level": report.level.name.lower(),
        "version": report.version,
        "records": report.records,
        "versions": report.versions,
        "resumed": report.resumed,
        "anchors": report.anchors,
        "packs": report.packs,
        "bytes": report.nbytes,
        "sound": report.sound,
        "log_stops_at": report.stopped,
        "found": report.found,
        "corrupt": report.corrupt,
        "unsupported": report.unsupported,
        "unread": report.unread,
        "not_listed": report.found - len(report.problems),
        "problems": [_problem_facts(found) for found in report.problems],
        "checks": {check.id: _check_facts(check, report) for check in CHECKS.values()},
        "figures": report.figures,
    }
    if report.worst is not None:
        first = report.worst
        facts["error"] = {"code": first.code, "message": first.message, "where": first.where}
    return facts


def _problem_facts(found: Problem) -> dict[str, Any]:
    return {
        "check": found.check,
        "code": found.code,
        "message": found.message,
        "where": found.where,
        "offset": found.offset,
        "version": found.version,
        "tensor": found.tensor,
    }


def _check_facts(check: Check, report: Report) -> dict[str, Any]:
    return {
        "section": check.section,
        "judged": check.judged.name.lower(),
        "passed": report.judged.get(check.id, 0),
        "failed": report.broken.get(check.id, 0),
    }


def report_lines(report: Report) -> Iterator[str]:
    """What was found: one line where all is well, else one for each problem."""
    counts = (
        f"{plural(report.versions, 'version')}, {plural(report.records, 'record')}, "
        f"{plural(report.anchors, 'anchor')}, {plural(report.packs, 'pack')}, {size(report.nbytes)}"
    )
    only = "" if report.version is None else f"version {report.version} and what it builds on only, "
    judged = f"{only}level {report.level.name.lower()}, {plural(len(report.judged), 'check')}"
    if report.resumed:
        judged += f", {plural(report.resumed, 'version')} sound by the notes"
    if report.ok:
        yield f"ok: {counts} ({judged})"
        yield from _replay_lines(report)
        return
    yield f"{_verdict(report)} in {counts} ({judged})"
    for found in report.problems:
        yield f"  {found.check or '-'} {found.code} {_place(found)}: {plain(found.message)}"
    if report.found > len(report.problems):
        yield f"  and {report.found - len(report.problems):,} more: --limit 0 lists all"
    if report.stopped is not None:
        yield f"the log cannot be read beyond slot {report.stopped}: readers of any version stop there"
    yield f"newest sound version: {'none' if report.sound is None else report.sound}"
    yield from _replay_lines(report)


def _verdict(report: Report) -> str:
    """The worst that there is, and how many problems are of which kind."""
    kinds = (
        ("corrupt", report.corrupt, plural(report.corrupt, "problem")),
        ("unsupported", report.unsupported, f"{report.unsupported:,} of a newer format or an unknown kind"),
        ("unread", report.unread, f"{report.unread:,} that could not be read"),
    )
    there = [(name, said) for name, count, said in kinds if count]
    return f"{there[0][0]}: {', '.join(said for _, said in there)}"


def problem_line(report: Report) -> str:
    """Why the exit status is not 0, in short: damage is listed, what else is wrong may be helped."""
    first = report.worst
    if first is None:
        return ""
    if not report.corrupt:
        return first.message
    more = f", the first of {plural(report.found, 'problem')}" if report.found > 1 else ""
    return f"{first.where}: {first.code}, {first.check}{more}"


def _replay_lines(report: Report) -> Iterator[str]:
    """What only a replay tells."""
    figures = report.figures
    if report.level >= Level.DEEP:
        yield (
            f"replayed and right {figures.get('replayed', 0):,} of {plural(report.versions, 'version')}: "
            f"{plural(figures.get('changed', 0), 'element')} changed, where records say "
            f"{figures.get('changed_said', 0):,}"
        )
    if "inverted" in figures:
        yield (
            f"certificates: {plural(figures['inverted'], 'element')} inverted, {figures['uncertain']:,} "
            f"uncertain; {plural(figures['blocks'], 'block')}, {figures['settled']:,} settled, "
            f"{figures['unexplained']:,} unexplained"
        )


def _place(found: Problem) -> str:
    """Where a problem is, as far as its message does not say it."""
    places = [
        "" if found.version is None else f"version {found.version}",
        "" if found.offset is None else f"byte {found.offset}",
    ]
    return ", ".join(place for place in places if place) or "log"


def check_lines(report: Report) -> Iterator[str]:
    """Every requirement: its section, what was found of it, and what it means."""
    yield ""
    yield f"{'check':<7}{'section':<9}{'found':<28}meaning"
    for check in CHECKS.values():
        yield f"{check.id:<7}{check.section:<9}{_outcome(check, report):<28}{check.meaning}"


def _outcome(check: Check, report: Report) -> str:
    passed, failed = report.judged.get(check.id, 0), report.broken.get(check.id, 0)
    if failed:
        return f"failed {failed:,}, passed {passed:,}"
    if isinstance(check.judged, Conduct):
        return _CONDUCT[check.judged]
    if check.judged > report.level:
        return f"needs --level {check.judged.name.lower()}"
    return f"passed {passed:,}" if passed else "nothing to judge"
