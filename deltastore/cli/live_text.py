"""What ``validate --live`` found, as JSON and for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deltastore.validate.live.report import LiveReport

__all__ = ["live_facts", "live_lines", "live_problem", "share"]

_CODE = "bad_digest"
_SHOWN = 10


def live_facts(report: LiveReport) -> dict[str, Any]:
    """The report for JSON; ``error`` is there exactly when something differs, as with every command."""
    from deltastore.validate.live.report import CHECK

    facts: dict[str, Any] = {
        "ok": report.ok,
        "version": report.version,
        "sources": list(report.sources),
        "compared": "digests" if report.attested else "bits",
        "claimed": list(report.claimed),
        "agreed": report.agreed,
        "claims": [
            {"source": source, "version": version, "label": label, "time": time, "nonce": nonce}
            for source, (version, label, time, nonce) in zip(report.sources, report.claims, strict=False)
        ],
        "covered": report.covered,
        "total": report.total,
        "elements": report.elements,
        "holes": report.holes,
        "chunks": report.chunks,
        "differing_chunks": report.differing,
        "differences": report.found,
        "instead": report.instead,
        "shares": [{"version": version, "chunks": count} for version, count in report.shares.items()],
        "problems": [
            {
                "check": CHECK,
                "code": _CODE,
                "source": one.source,
                "tensor": one.tensor,
                "parameter": one.parameter,
                "index": list(one.index),
                "elements": one.elements,
                "chunk": one.chunk,
                "live": one.live,
                "stored": one.stored,
                "message": str(one),
            }
            for one in report.apart
        ],
        "astray": [{"source": source, "parameter": name} for source, name in report.astray],
    }
    if not report.ok:
        facts["error"] = {"code": _CODE, "message": live_problem(report), "where": report.sources[0]}
    return facts


def live_problem(report: LiveReport) -> str:
    """What is wrong in one line."""
    if not report.agreed:
        return f"readers claim different versions: {', '.join(map(str, report.claimed))}"
    said = f"the live weights are not version {report.version}"
    if report.instead is not None:
        return f"{said}: they are version {report.instead}"
    if report.apart:
        return f"{said}: {report.apart[0]}"
    source, name = report.astray[0]
    return f"{said}: {source}: parameter {name} has copies, or lower halves, that are not the version's"


def live_lines(report: LiveReport) -> list[str]:
    """The report for people."""
    from deltastore.cli.wording import plain, plural
    from deltastore.validate.live.report import CHECK

    compared = f"{plural(report.elements, 'element')} compared"
    how = (
        f"by digests of {plural(report.chunks, 'chunk')} of live memory" if report.attested else "bit by bit"
    )
    holes = f"; {plural(report.holes, 'element')} of padding not compared" if report.holes else ""
    extent = f"({compared} {how}, {share(report)}{holes})"
    if report.ok:
        return [f"live = version {report.version} {extent}", *_claim_lines(report)]
    lines = [f"live is not version {report.version} {extent}", *_claim_lines(report)]
    if not report.agreed:
        lines.append(f"  {CHECK} readers claim different versions: {', '.join(map(str, report.claimed))}")
    if report.instead is not None:
        lines.append(f"  it is version {report.instead}")
    elif len(report.shares) > 1:
        lines += [f"  {_share(version, count, report)}" for version, count in report.shares.items()]
    lines += [f"  {plain(one)}" for one in report.apart[:_SHOWN]]
    if report.found > _SHOWN:
        lines.append(f"  and {report.found - _SHOWN} more like these")
    lines += [
        f"  {plain(source)}: parameter {plain(name)} has copies, or lower halves, that differ"
        for source, name in report.astray[:_SHOWN]
    ]
    return lines


def share(report: LiveReport) -> str:
    """How much of the model was compared."""
    from deltastore.cli.wording import percent

    if report.covered == report.total:
        return "all of the model"
    return f"{percent(report.covered, report.total)} of the model"


def _claim_lines(report: LiveReport) -> list[str]:
    from deltastore.cli.wording import moment, plain

    claims = list(zip(report.sources, report.claims, strict=False))
    lines = [
        f"  {plain(source)}: version {version}, {moment(time)}, label {plain(label) or '-'}, nonce {nonce}"
        for source, (version, label, time, nonce) in claims[:_SHOWN]
    ]
    more = len(claims) - _SHOWN
    return [*lines, f"  and {more} more statements"] if more > 0 else lines


def _share(version: int | None, count: int, report: LiveReport) -> str:
    from deltastore.cli.wording import plural

    are = f"{plural(count, 'chunk')} {'is' if count == 1 else 'are'}"
    if version is None:
        return f"{are} as in none of the versions that led to {report.version}"
    return f"{are} as in version {version}"
