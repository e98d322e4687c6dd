"""Metrics: what a scrape says, by the names that dashboards and tests rely on."""

import threading

import pytest
from prometheus_client.parser import text_string_to_metric_families

from common.domain import Priority
from common.metrics import Metrics, class_labels, model_labels
from common.tallies import MAX_SERIES, Spread, Tally

MODEL = model_labels("smol")


@pytest.fixture
def metrics():
    metrics = Metrics()
    yield metrics
    metrics.shutdown(1)


def scraped(metrics: Metrics) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    text = metrics.scrape()[0].decode()
    samples: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = tuple(sorted(sample.labels.items()))
            samples.setdefault(sample.name, {})[key] = sample.value
    return samples


def test_names_appear_exactly_as_promised(metrics):
    """The contract with dashboards, alerts and the autoscaler, suffixes included."""
    metrics.num_requests_running.watch(lambda: [(1, MODEL)])
    metrics.num_requests_waiting.watch(lambda: [(2, class_labels("smol", Priority.HIGH))])
    metrics.kv_cache_usage.watch(lambda: [(0.5, MODEL)])
    for counter in (
        metrics.dispatched,
        metrics.prompt_tokens,
        metrics.generation_tokens,
        metrics.takeovers,
        metrics.worker_losses,
    ):
        counter.add(1, MODEL)
    metrics.redis_errors.watch(lambda: [(3, {})])
    metrics.queue_oldest.watch(lambda: [(3.5, MODEL)])
    metrics.step_age.watch(lambda: [(0, MODEL)])
    metrics.device_memory_used.watch(lambda: [(1, {"device": "cpu"})])
    metrics.device_memory_total.watch(lambda: [(2, {"device": "cpu"})])
    metrics.request_success.add(1, {**MODEL, "finish_reason": "stop"})
    metrics.admission_refusals.add(1, {**MODEL, "reason": "QUEUE_FULL"})
    for histogram in (
        metrics.queue_time,
        metrics.time_to_first_token,
        metrics.step_time,
        metrics.batch_size,
        metrics.log_append_time,
        metrics.gen_ai_request_duration,
        metrics.gen_ai_time_to_first_token,
        metrics.gen_ai_time_per_output_token,
        metrics.rpc_server_call_duration,
    ):
        histogram.record(0.1, MODEL)
    metrics.token_gaps.record(0.02, MODEL, 4)
    names = {name for name in scraped(metrics) if not name.endswith(("_bucket", "_sum"))}
    assert names == {
        "headrace_build_info",
        "headrace_num_requests_running",
        "headrace_num_requests_waiting",
        "headrace_kv_cache_usage_ratio",
        "headrace_dispatched_total",
        "headrace_prompt_tokens_total",
        "headrace_generation_tokens_total",
        "headrace_takeovers_total",
        "headrace_worker_losses_total",
        "headrace_redis_errors_total",
        "headrace_request_success_total",
        "headrace_admission_refusals_total",
        "headrace_queue_time_seconds_count",
        "headrace_time_to_first_token_seconds_count",
        "headrace_inter_token_latency_seconds_count",
        "headrace_step_time_seconds_count",
        "headrace_batch_size_count",
        "headrace_log_append_seconds_count",
        "headrace_queue_oldest_seconds",
        "headrace_step_age_seconds",
        "headrace_device_memory_used_bytes",
        "headrace_device_memory_bytes",
        "gen_ai_server_request_duration_seconds_count",
        "gen_ai_server_time_to_first_token_seconds_count",
        "gen_ai_server_time_per_output_token_seconds_count",
        "rpc_server_call_duration_seconds_count",
    }


def test_labels_are_ours_alone(metrics):
    """No scope or target labels that would multiply every series."""
    metrics.dispatched.add(3, class_labels("smol", Priority.CRITICAL))
    samples = scraped(metrics)
    assert samples["headrace_dispatched_total"] == {
        (("class", "critical"), ("model_name", "smol")): 3.0
    }
    assert "target_info" not in samples


def test_a_gauge_is_read_when_somebody_looks(metrics):
    """Never stale: the second scrape sees the second value."""
    values = [1, 7]
    metrics.num_requests_waiting.watch(lambda: [(values[0], MODEL)])
    name = "headrace_num_requests_waiting"
    assert scraped(metrics)[name] == {(("model_name", "smol"),): 1}
    values.pop(0)
    assert scraped(metrics)[name] == {(("model_name", "smol"),): 7}


def test_a_gauge_whose_reading_fails_costs_only_itself(metrics, caplog):
    """The other metrics matter most when something is broken."""

    def fail():
        raise RuntimeError("dictionary changed size")

    metrics.num_workers.watch(fail)
    metrics.dispatched.add(1, MODEL)
    assert "headrace_dispatched_total" in scraped(metrics)
    assert "dictionary changed size" in caplog.text


def test_waiting_times_of_an_overloaded_queue_are_told_apart(metrics):
    """Ten minutes and forty minutes are different buckets."""
    metrics.queue_time.record(600, MODEL)
    metrics.queue_time.record(2400, MODEL)
    buckets = scraped(metrics)["headrace_queue_time_seconds_bucket"]
    by_bound = {dict(key)["le"]: value for key, value in buckets.items()}
    assert (by_bound["640.0"], by_bound["2560.0"]) == (1, 2)


@pytest.mark.parametrize(
    ("name", "bounds"),
    [
        ("request_duration", [0.01 * 2**power for power in range(14)]),
        (
            "time_to_first_token",
            [
                *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1),
                *(0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10),
            ],
        ),
        (
            "time_per_output_token",
            [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5],
        ),
    ],
)
def test_the_conventions_bounds_are_kept(metrics, name, bounds):
    """As the GenAI conventions give them, so that others' dashboards fit; ours beside them reach further."""
    getattr(metrics, f"gen_ai_{name}").record(1, MODEL)
    buckets = scraped(metrics)[f"gen_ai_server_{name}_seconds_bucket"]
    found = sorted(float(dict(key)["le"]) for key in buckets)
    assert found == pytest.approx([*bounds, float("inf")])


def test_token_gaps_count_every_token_of_a_step(metrics):
    """One call for a whole step, yet the histogram is one of tokens."""
    metrics.token_gaps.record(0.02, MODEL, 8)
    metrics.token_gaps.record(0.2, MODEL, 2)
    samples = scraped(metrics)
    key = (("model_name", "smol"),)
    assert samples["headrace_inter_token_latency_seconds_count"][key] == 10
    assert samples["headrace_inter_token_latency_seconds_sum"][key] == pytest.approx(0.56)
    buckets = samples["headrace_inter_token_latency_seconds_bucket"]
    by_bound = {dict(key)["le"]: value for key, value in buckets.items()}
    assert (by_bound["0.025"], by_bound["0.2"], by_bound["+Inf"]) == (8, 10, 10)


def test_what_is_kept_here_is_silent_until_there_is_any():
    """An empty histogram is not exported, and no empty counter."""
    assert Spread("x", "", "s", (1.0,)).collect() is None
    assert Tally("x", "").collect() is None


def test_the_order_of_labels_makes_no_series():
    """Equal labels are one series, however they were put together."""
    tally = Tally("x", "")
    tally.add(1, {"a": "1", "b": "2"})
    tally.add(2, {"b": "2", "a": "1"})
    found = tally.collect()
    assert found is not None
    assert [(point.attributes, point.value) for point in found.data.data_points] == [
        ({"a": "1", "b": "2"}, 3)
    ]


@pytest.mark.parametrize("name", ["dispatched", "takeovers"], ids=["kept here", "the SDK's"])
def test_a_label_gone_wild_is_bounded(metrics, name):
    """A bug that puts ids into labels costs a bounded number of series."""
    for number in range(MAX_SERIES + 500):
        getattr(metrics, name).add(1, {"model_name": str(number)})
    series = scraped(metrics)[f"headrace_{name}_total"]
    assert len(series) <= MAX_SERIES + 1
    assert sum(series.values()) == MAX_SERIES + 500


def test_two_scrapes_at_once_both_see_everything(metrics):
    """Two Prometheus servers are common; neither may get doubled or halved data."""
    metrics.dispatched.add(1, MODEL)
    metrics.queue_time.record(1, MODEL)
    answers: list[bytes] = []
    barrier = threading.Barrier(8)

    def scrape() -> None:
        barrier.wait()
        answers.extend(metrics.scrape()[0] for _ in range(20))

    threads = [threading.Thread(target=scrape) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(answers)) == 1


def test_two_processes_worth_of_metrics_do_not_meet():
    """No global registry: a test, or two services in one process, see only their own."""
    one, two = Metrics(), Metrics()
    one.dispatched.add(1, MODEL)
    assert "headrace_dispatched_total" not in scraped(two)
    one.shutdown(1)
    two.shutdown(1)


def test_prometheus_may_ask_for_openmetrics(metrics):
    """Content negotiation as Prometheus does it."""
    body, content_type = metrics.scrape("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")
