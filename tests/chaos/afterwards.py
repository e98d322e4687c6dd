"""What must be left when all has ended and all is healed: service, and nothing else."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import islice

from headrace.client import AsyncClient, HeadraceError
from tests.chaos.asks import Known
from tests.chaos.checks import compare
from tests.chaos.cluster import TENANTS, Cluster
from tests.support.outcomes import collect
from tests.support.polling import eventually
from tests.support.time_scale import scaled

# From common/keys.py: what may stay for ever, because its size is bounded or people decide about it.
_FOR_EVER = re.compile(
    r"hr:\{[^}]+\}:(inbox:\w+|queued|dead)|hr:\{cards\}:.+|hr:\{access\}:(keys|tenants)"
)
# A log that is trimmed behind its oldest mark keeps whole nodes of 100 entries, and what its reader has not marked.
_MOST_LOG_ENTRIES = 1000
_WITHIN_S = 60.0
# The longest that Redis is away in one go, and then a few looks.
_GIVES_BACK_WITHIN_S = 45.0
# From common/keys.py: what there is of each request or key that a client chose, once for a partition, once for a
# gateway's life, and for the models. A drain order goes with its worker.
_OF_REQUESTS = re.compile(r"hr:\{[^}]+\}:req:.+|hr:\{(idem|answer):.+\}")
# A drain order whose leader died before it saw the worker go stays until its TTL.
_OF_PARTITIONS = re.compile(r"hr:\{[^}:]+/\d+\}:(inbox:\w+|queued|dead|lead|status|wake|drain:.+)")
_OF_GATEWAYS = re.compile(r"hr:\{gw:\w+\}:(replies|marks|alive)")
_OF_MODELS = re.compile(r"hr:\{cards\}:.+")
_OF_TENANTS = re.compile(r"hr:\{access\}:(keys|tenants)|hr:\{tenant:\w+\}:(quota|minute|open)")
_KINDS = (_OF_REQUESTS, _OF_PARTITIONS, _OF_MODELS, _OF_TENANTS)


async def check_service(cluster: Cluster, known: list[Known]) -> list[str]:
    """ALIVE: each gateway answers as before, for each model."""
    wrong = []
    by_model = {one.model: one for one in known if len(one.answer.token_ids) < 200}
    for target in cluster.targets:
        for one in by_model.values():
            async with cluster.tenant(TENANTS[0], [target]) as client:
                try:
                    got = await collect(client, one.request, timeout_s=60)
                except (HeadraceError, AssertionError) as error:
                    wrong.append(f"{target} does not serve {one.model}: {error}")
                    continue
                if not await _is_cached(client, one):
                    wrong.append(f"{target} does not answer {one.model} from the cache")
            wrong += [f"{target}, {one.model}, at the end: {text}" for text in compare(one, got)]
    return wrong


async def _is_cached(client: AsyncClient, known: Known) -> bool:
    """Whether an answer can be had again, once it has been noted behind the call that got it first."""
    async with asyncio.timeout(scaled(_WITHIN_S)):
        while True:
            got = await collect(client, known.request, timeout_s=60, use_response_cache=True)
            if got.is_from_cache or got.error is not None:
                return not compare(known, got)


def check_nothing_left(cluster: Cluster) -> list[str]:
    """KVFREE, PELZERO, counters at zero, no keys that stay, logs trimmed. Blocks."""
    checks = {
        "KV blocks are in use": lambda: _gauge_is_zero(cluster, "headrace_kv_cache_usage_ratio"),
        "workers run something": lambda: _gauge_is_zero(cluster, "headrace_num_requests_running"),
        "schedulers count something": lambda: not any(_scheduler_gauges(cluster)),
        "inbox entries are left": lambda: not any(_inbox(cluster)),
        "admission counters are not zero": lambda: not any(_counters(cluster)),
        "requests have marks in logs": lambda: not any(_marks(cluster)),
        "keys stay for ever": lambda: not any(_keys_that_stay(cluster)),
        "logs are not trimmed": lambda: not any(_long_logs(cluster)),
        "there are keys too many": lambda: not any(_surplus(cluster)),
        "quotas are not settled": lambda: not any(_open_quotas(cluster)),
    }
    details = {
        "inbox entries are left": _inbox,
        "admission counters are not zero": _counters,
        "requests have marks in logs": _marks,
        "keys stay for ever": _keys_that_stay,
        "logs are not trimmed": _long_logs,
        "there are keys too many": _surplus,
        "quotas are not settled": _open_quotas,
        "schedulers count something": _scheduler_gauges,
    }
    wrong = []
    for what, holds in checks.items():
        try:
            eventually(holds, within_s=_WITHIN_S, every_s=0.2)
        except (AssertionError, OSError) as error:
            wrong.append(f"{what}: {_detail(details.get(what), cluster) or error}")
    return wrong


def _detail(look: Callable[[Cluster], Iterator[str]] | None, cluster: Cluster) -> list[str]:
    try:
        return [] if look is None else list(islice(look(cluster), 20))
    except OSError as error:
        return [str(error)]


def check_logs(cluster: Cluster) -> Iterator[str]:
    """Nothing failed in a way that nobody had thought of."""
    for member in [*cluster.members, *cluster.left]:
        for line in member.process.log.splitlines():
            if '"call failed"' in line or '"service failed"' in line or "Traceback" in line:
                yield f"{member.name}: {line[:300]} … {line[-300:]}"


def _gauge_is_zero(cluster: Cluster, name: str) -> bool:
    return all(cluster.stack.metric(worker.process, name) == 0 for worker in cluster.workers)


def _scheduler_gauges(cluster: Cluster) -> Iterator[str]:
    for member in cluster.schedulers:
        for name in ("headrace_num_requests_running", "headrace_num_requests_waiting"):
            if value := cluster.stack.metric(member.process, name):
                yield f"{member.name} {name} {value:g}"


def _inbox(cluster: Cluster) -> Iterator[str]:
    client = cluster.client
    for key in client.keys("hr:*:inbox:*"):
        for entry_id, fields in client.xrange(key, count=10):
            yield f"{key.decode()} {entry_id.decode()} {fields.get(b'id', b'').decode()}"
        for group in client.xinfo_groups(key):
            if group["pending"]:
                yield f"{key.decode()} pending {group['pending']}"


def _counters(cluster: Cluster) -> Iterator[str]:
    for key in cluster.client.keys("hr:*:queued"):
        for name, value in cluster.client.hgetall(key).items():
            if int(value):
                yield f"{key.decode()} {name.decode()} = {value.decode()}"


def _marks(cluster: Cluster) -> Iterator[str]:
    for key in cluster.client.keys("hr:*:marks"):
        for name in cluster.client.zrange(key, 0, -1):
            if not name.startswith(b"reader:"):
                yield f"{key.decode()} {name.decode()}"


def _keys_that_stay(cluster: Cluster) -> Iterator[str]:
    for name in cluster.stack.keys_without_ttl():
        if not _FOR_EVER.fullmatch(name):
            yield name


def _surplus(cluster: Cluster) -> Iterator[str]:
    """Keys of no known kind, and those of more gateways than have lived."""
    gateways: set[str] = set()
    for name in (key.decode() for key in cluster.client.keys("*")):
        if _OF_GATEWAYS.fullmatch(name):
            gateways.add(name.split("}")[0])
        elif not any(kind.fullmatch(name) for kind in _KINDS):
            yield name
    num_lives = sum(member.process.log.count('"serving"') for member in cluster.gateways)
    if len(gateways) > num_lives:
        yield f"logs of {len(gateways)} gateways, of whom {num_lives} have lived"


def _open_quotas(cluster: Cluster) -> Iterator[str]:
    """Requests that count as open, though they have ended.

    One that died with its gateway before it could be given back is let go of when it cannot be running any more: of
    that there is no record, and no gateway that lived on has told its end.
    """
    logs = [member.process.log.splitlines() for member in cluster.gateways]
    for key in cluster.client.keys("hr:{tenant:*}:open"):
        for name in (name.decode() for name in cluster.client.zrange(key, 0, -1)):
            partition = name.rpartition(":")[0].replace(":", "/")
            is_admitted = cluster.client.exists(f"hr:{{{partition}}}:req:{name}")
            if is_admitted or any(_told_and_lived_on(lines, name) for lines in logs):
                yield f"{key.decode()} {name}"


def _told_and_lived_on(lines: Sequence[str], request_id: str) -> bool:
    """Whether a gateway told the request's end, and was there afterwards for as long as giving back takes.

    It has to wait until Redis is there, and then for what Redis may still have to read.
    """
    told = [place for place, line in enumerate(lines) if f'"request_id": "{request_id}"' in line]
    if not told:
        return False
    begun = next((line for line in lines[told[0] :] if '"serving"' in line), None)
    return begun is None or _at_s(begun) - _at_s(lines[told[0]]) > _GIVES_BACK_WITHIN_S


def _at_s(line: str) -> float:
    return datetime.fromisoformat(json.loads(line)["timestamp"]).timestamp()


def _long_logs(cluster: Cluster) -> Iterator[str]:
    """Logs of gateways that live; those of dead ones go with their TTL."""
    client = cluster.client
    alive = {key.decode().split("{gw:")[1].split("}")[0] for key in client.keys("hr:*:alive")}
    for gateway in alive:
        length = client.xlen(f"hr:{{gw:{gateway}}}:replies")
        if length > _MOST_LOG_ENTRIES:
            yield f"{gateway}: {length} entries"
