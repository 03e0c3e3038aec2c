"""How far providers take the schemas of real tools, as their servers write them and in the portable form."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from quarterdeck_protocol.schema.portable import portable_schema
from quarterdeck_protocol.schema.providers.outside import Provider, Rule, outside
from support.servers.real_tools import RealServer


@dataclass(frozen=True, slots=True)
class Verdict:
    """The rules that one tool breaks with one provider, before and after."""

    server: str
    tool: str
    provider: Provider
    before: frozenset[Rule]
    after: frozenset[Rule]


def verdicts(servers: Iterable[RealServer]) -> Iterator[Verdict]:
    for server in servers:
        for tool in server.tools:
            original = tool["inputSchema"]
            portable = portable_schema(original)
            for provider in Provider:
                before, after = (broken(schema, provider) for schema in (original, portable))
                yield Verdict(server.name, tool["name"], provider, before, after)


def broken(schema: object, provider: Provider) -> frozenset[Rule]:
    return frozenset(found.rule for found in outside(schema, provider))


def tool_lines(found: Iterable[Verdict]) -> Iterator[str]:
    """A line for every tool and provider that is not content with the portable form, or was not with the original."""
    for one in found:
        if one.before or one.after:
            yield "\t".join((one.server, one.tool, one.provider, _words(one.before), _words(one.after)))


def summary_lines(found: Iterable[Verdict]) -> Iterator[str]:
    """How many tools break which rule of which provider, before and after."""
    found = list(found)
    before = Counter((one.provider, rule) for one in found for rule in one.before)
    after = Counter((one.provider, rule) for one in found for rule in one.after)
    for provider in Provider:
        whole = [one for one in found if one.provider is provider]
        before_inside, after_inside = sum(not one.before for one in whole), sum(not one.after for one in whole)
        yield f"{provider}: {before_inside} of {len(whole)} tools inside as written, {after_inside} when portable"
        for rule in Rule:
            if before[provider, rule] or after[provider, rule]:
                yield f"  {rule}: {before[provider, rule]} -> {after[provider, rule]}"


def _words(rules: frozenset[Rule]) -> str:
    return ",".join(sorted(rules)) or "-"
