"""Every Redis key of Headrace, with its lifetime (`lengths` derives those that hang together) and the reason for it.

``{…}`` is the cluster hash tag: whatever one script touches for one request shares its partition's tag, and
whatever belongs to one gateway's log shares the gateway's.
"""

from common.domain import Partition, Priority, RequestId
from common.lengths import LENGTHS, milliseconds

GROUP = "schedulers"
"""The one consumer group of every inbox; consumers are scheduler incarnations."""

LONGEST_LIFE_MS = milliseconds(LENGTHS.longest_life_s)
"""A request ends at the latest so long after its admission, whatever happens to it."""

RESULT_TTL_MS = milliseconds(LENGTHS.result_ttl_s)
"""A terminal record stays so long: time to fetch a result after a lost answer, and to settle it."""

OPEN_RECORD_TTL_MS = milliseconds(LENGTHS.open_record_ttl_s)
"""An open record outlives the longest life, so that it can never vanish while a scheduler works on it."""

IDEMPOTENCY_TTL_MS = milliseconds(LENGTHS.claim_ttl_s)
"""A claim outlives its request's record, or a retry could run while the first result is still there.

An open record lives at most OPEN_RECORD_TTL_MS from its admission and RESULT_TTL_MS from its end, whenever that was
written; the minute is what may lie between the claim and the admission behind it.
"""

LOG_TTL_MS = milliseconds(LENGTHS.log_ttl_s)
"""Renewed by each append: a log nobody writes to has no open request that could still need it."""

GATEWAY_LEASE_MS = milliseconds(LENGTHS.gateway_lease_s)
"""Four lost renewals in a row mean that a gateway is gone."""

LEADER_LEASE_MS = milliseconds(LENGTHS.leader_lease_s)
"""Short, because nothing is dispatched without a leader; six renewals fit in."""

RELEASED_LEASE_TTL_MS = 24 * 3_600_000
"""How long a lease says that it was given back; after it a new leader waits out an absence, which is harmless."""

STATUS_TTL_MS = milliseconds(LENGTHS.status_ttl_s)
"""A snapshot is written each second; an older one would mislead."""

WAKE_TTL_MS = milliseconds(LENGTHS.wake_ttl_s)
"""Wake messages only hurry what heartbeats find anyway; older ones are noise."""

QUOTA_TTL_MS = OPEN_RECORD_TTL_MS
"""Outlives every request that is counted; behind it nothing is open, and the minute is long over."""

DRAIN_TTL_MS = 3_600_000
"""A drain order outlives reconnections of its worker and the death of the leader that would have cleared it."""

SCHEDULER_SIGN_MS = LEADER_LEASE_MS
"""A scheduler that is silent for as long as a leader may be counts no more where partitions are shared out."""


def inbox(partition: Partition, priority: Priority) -> str:
    """Stream of accepted requests of one class. No TTL, no MAXLEN: it is the queue; entries go with their ack."""
    return f"hr:{{{partition}}}:inbox:{priority.name.lower()}"


def record(request_id: RequestId) -> str:
    """Hash with everything about one request. TTL: OPEN_RECORD_TTL_MS, then RESULT_TTL_MS from its end."""
    return f"{record_prefix(request_id.partition)}{request_id}"


def record_prefix(partition: Partition) -> str:
    """What the keys of a partition's records begin with; the request id follows."""
    return f"hr:{{{partition}}}:req:"


EVERY_RECORD = "hr:{*}:req:*"
"""Pattern of all records, for operators' searches alone."""


def idempotency(tenant: str, key: str) -> str:
    """Hash with the request that a tenant's idempotency key stands for. TTL: IDEMPOTENCY_TTL_MS.

    Not in a partition's slot: the key holds for all models. Tenants' names have no colon, so no two pairs are alike.
    """
    return f"hr:{{idem:{tenant}:{key}}}"


def response_cache(tenant: str, digest: str) -> str:
    """String with the request that has the answer to what ``digest`` stands for. TTL: RESULT_TTL_MS, as its record's.

    Not in a partition's slot: an equal request may get any. Tenants' names have no colon.
    """
    return f"hr:{{answer:{tenant}:{digest}}}"


def queued(partition: Partition) -> str:
    """Hash of admission counters, changed only inside scripts that change a status. No TTL: bounded size."""
    return f"hr:{{{partition}}}:queued"


def lead(partition: Partition) -> str:
    """The leader's lease and address. TTL: LEADER_LEASE_MS; empty after a clean stop, for RELEASED_LEASE_TTL_MS."""
    return f"hr:{{{partition}}}:lead"


def status(partition: Partition) -> str:
    """The leader's snapshot. TTL: STATUS_TTL_MS."""
    return f"hr:{{{partition}}}:status"


def wake(partition: Partition) -> str:
    """Stream of "look at X". Trimmed to WAKE_TTL_MS by each append; expires by the same span."""
    return f"hr:{{{partition}}}:wake"


def dead(partition: Partition) -> str:
    """Stream of dead letters with their history. No TTL: people decide about them."""
    return f"hr:{{{partition}}}:dead"


def drain(partition: Partition, worker_id: str) -> str:
    """Order to drain a worker: its grace, and for which of its lives. TTL: DRAIN_TTL_MS."""
    return f"hr:{{{partition}}}:drain:{worker_id}"


def reply_log(gateway_id: str) -> str:
    """The reply log of a gateway incarnation. TTL: LOG_TTL_MS, renewed by appends."""
    return f"hr:{{gw:{gateway_id}}}:replies"


def log_marks(gateway_id: str) -> str:
    """Sorted set of positions (milliseconds of an id) that the log must keep. TTL as the log's."""
    return f"hr:{{gw:{gateway_id}}}:marks"


def gateway_alive(gateway_id: str) -> str:
    """A gateway's lease. TTL: GATEWAY_LEASE_MS."""
    return f"hr:{{gw:{gateway_id}}}:alive"


def api_keys() -> str:
    """Hash from key id to an API key, without its secret. No TTL: people decide about them."""
    return "hr:{access}:keys"


def tenants() -> str:
    """Hash from tenant to its limits. No TTL: people decide about them."""
    return "hr:{access}:tenants"


def quota(tenant: str) -> tuple[str, str, str]:
    """What a tenant has used of its limits: tokens by request id (hash), the last minute's requests and the open ones
    (sorted sets by time). TTL: QUOTA_TTL_MS, renewed by each change.
    """
    tag = f"hr:{{tenant:{tenant}}}"
    return f"{tag}:quota", f"{tag}:minute", f"{tag}:open"


def model_index() -> str:
    """Hash from model name to current revision. No TTL: a known model holds requests without workers."""
    return "hr:{cards}:index"


def aliases() -> str:
    """Hash from a name to the models that it points at. No TTL: operators decide about it."""
    return "hr:{cards}:aliases"


def partition_counts() -> str:
    """Hash from model name to number of partitions. No TTL: it cannot shrink while requests live."""
    return "hr:{cards}:partitions"


def schedulers() -> str:
    """Sorted set of live schedulers by their last sign of life. TTL: SCHEDULER_SIGN_MS, renewed by each sign."""
    return "hr:{cards}:schedulers"


def card(model: str, revision: str) -> str:
    """String with a serialized model card. No TTL: gateways and schedulers have no model files."""
    return f"hr:{{cards}}:{model}:{revision}"
