"""Every environment name that some part of Headrace knows.

A service refuses a ``HEADRACE_`` name that is not here, yet may not import the other services to ask
them. So the names are listed, and a test compares the list with each service's settings. A new setting
adds its line here.
"""

_EVERY_SERVICE = """
LOG_FORMAT LOG_LEVEL METRICS_HOST METRICS_PORT OTLP_ENDPOINT OTLP_INSECURE READY_FILE SERVICE_INSTANCE
STOP_GRACE_S TRACE_SAMPLE_RATIO
"""
_GATEWAY = """
"""
_SCHEDULER = """
"""
_WORKER = """
"""
_LOCAL = """
DATA_DIR ENGINE GATEWAY_MODULE MODEL PORT QUANTIZATION RUN SCHEDULER_MODULE START_TIMEOUT_S VERBOSE
WORKER_MODULE WORKERS
"""
_CLIENT = """
API_KEY TARGET
"""
_TESTS = """
TEST_REDIS TEST_TIME_SCALE
"""

KNOWN_NAMES: frozenset[str] = frozenset(
    f"HEADRACE_{name}"
    for group in (_EVERY_SERVICE, _GATEWAY, _SCHEDULER, _WORKER, _LOCAL, _CLIENT, _TESTS)
    for name in group.split()
)
