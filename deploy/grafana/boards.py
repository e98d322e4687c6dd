"""The four dashboards: the whole, the queue, the workers, the tenants."""

from deploy.grafana.panels import MODEL, Board, Panel, quantiles, rate

OVERVIEW = Board(
    "overview",
    "Headrace: overview",
    [
        Panel("Requests ended", "By final status, each second. Failed, dead and expired are what users notice.",
              {"{{status}}": rate("headrace_requests_ended_total", "status")}, "reqps"),
        Panel("Share of errors", "Failed, dead and expired among all that ended; alerts above 2 %.",
              {"errors": f'(sum(rate(headrace_requests_ended_total{{{MODEL},status=~"failed|dead|expired"}}[$__rate_interval]))'
                         f" / sum(rate(headrace_requests_ended_total{{{MODEL}}}[$__rate_interval]))) or vector(0)"},
              "percentunit"),
        Panel("Time to first token", "From arrival at the gateway; alerts above 1 s at p99.",
              quantiles("headrace_time_to_first_token_seconds", 0.5, 0.95, 0.99), "s"),
        Panel("Time between tokens", "As workers compute them.",
              quantiles("headrace_inter_token_latency_seconds", 0.5, 0.99), "s"),
        Panel("Whole requests", "From arrival to the last token: grows with what is asked for.",
              quantiles("headrace_e2e_request_latency_seconds", 0.5, 0.99), "s"),
        Panel("Tokens", "Logged by schedulers: this is the usage.",
              {"prompt": rate("headrace_prompt_tokens_total", select=f'{MODEL},job="headrace-scheduler"'),
               "generated": rate("headrace_generation_tokens_total", select=f'{MODEL},job="headrace-scheduler"')}),
        Panel("Waiting and running", "Waiting without running means no worker; both high means too few.",
              {"waiting": f'sum(headrace_num_requests_waiting{{{MODEL},job="headrace-scheduler"}})',
               "running": f'sum(headrace_num_requests_running{{{MODEL},job="headrace-scheduler"}})'}),
        Panel("Workers", "Connected to a leader, by model.",
              {"{{model_name}}": f"sum by (model_name) (headrace_num_workers{{{MODEL}}})"}),
        Panel("Calls by status", "Codes of all calls at the gateways.",
              {"{{rpc_response_status_code}}": rate("rpc_server_call_duration_seconds_count", "rpc_response_status_code", select="")}, "reqps"),
        Panel("Open streams", "Clients that follow a request now, by gateway.",
              {"{{instance}}": "headrace_num_streams"}),
        Panel("CPU", "Cores in use, by process.",
              {"{{job}} {{instance}}": rate("process_cpu_time_seconds_total", "job, instance", select="")}),
        Panel("Memory", "Resident, by process.", {"{{job}} {{instance}}": "process_memory_usage_bytes"}, "bytes"),
    ],
)  # fmt: skip

QUEUE = Board(
    "queue",
    "Headrace: queue",
    [
        Panel("Waiting", "By class.",
              {"{{class}}": f'sum by (class) (headrace_num_requests_waiting{{{MODEL},class!=""}})'}),
        Panel("Oldest request", "Age by class; alerts above 10 s, batch aside.",
              {"{{class}}": f"max by (class) (headrace_queue_oldest_seconds{{{MODEL}}})"}, "s"),
        Panel("Queue time", "From admission to the first dispatch, of what was dispatched.",
              quantiles("headrace_queue_time_seconds", 0.5, 0.99, by="class"), "s"),
        Panel("Dispatched", "By class, each second.", {"{{class}}": rate("headrace_dispatched_total", "class")}, "reqps"),
        Panel("Batches", "Requests of one Assign.", quantiles("headrace_dispatch_batch_size", 0.5, 0.99)),
        Panel("Refused at admission", "By reason. QUEUE_FULL: the queue's bounds; NO_WORKER: callers that do not hold.",
              {"{{reason}}": rate("headrace_admission_refusals_total", "reason")}, "reqps"),
        Panel("Failures", "By reason, each second.", {"{{reason}}": rate("headrace_requests_failed_total", "reason")}, "reqps"),
        Panel("Leads and takeovers", "A deployment changes the lead once or twice; more is a storm.",
              {"leads taken": f"sum(increase(headrace_leaderships_total{{{MODEL}}}[15m]))",
               "requests taken over": f"sum(increase(headrace_takeovers_total{{{MODEL}}}[15m]))"}),
        Panel("Orphans", "Open requests whose gateways are gone; they end after orphan-grace-s.",
              {"{{model_name}}": f"sum by (model_name) (headrace_orphaned_requests{{{MODEL}}})"}),
        Panel("Appends to reply logs", "Every token passes through one: Redis' latency as users feel it.",
              quantiles("headrace_log_append_seconds", 0.5, 0.99), "s"),
        Panel("Redis errors", "Commands that failed and were repeated, by service.",
              {"{{job}}": rate("headrace_redis_errors_total", "job", select="")}),
        Panel("Dead letters", "Requests set aside, ever. `headrace dead list` shows them.",
              {"{{model_name}}": f"sum by (model_name) (headrace_dead_letters_total{{{MODEL}}})"}),
    ],
)  # fmt: skip

WORKER = Board(
    "worker",
    "Headrace: workers",
    [
        Panel("Running sequences", "By worker.", {"{{instance}}": f'headrace_num_requests_running{{{MODEL},job="headrace-worker"}}'}),
        Panel("KV cache", "Share of blocks in use; near 1 for long means pre-emptions.",
              {"{{instance}}": f"headrace_kv_cache_usage_ratio{{{MODEL}}}"}, "percentunit"),
        Panel("Step time", "One pass over all sequences.", quantiles("headrace_step_time_seconds", 0.5, 0.99), "s"),
        Panel("Step age", "Since the last step ended, while there is work; alerts above 15 s.",
              {"{{instance}}": f"headrace_step_age_seconds{{{MODEL}}}"}, "s"),
        Panel("Sequences of a step", "How full batches are.", quantiles("headrace_batch_size", 0.5, 0.99)),
        Panel("Tokens of a step", "Prefill and decode together.", quantiles("headrace_step_tokens", 0.5, 0.99)),
        Panel("Generated", "Tokens each second, by worker.",
              {"{{instance}}": rate("headrace_generation_tokens_total", "instance", select=f'{MODEL},job="headrace-worker"')}),
        Panel("Pre-emptions and failures", "Sequences put back, and rows that failed alone.",
              {"pre-empted": rate("headrace_preemptions_total"), "failed {{reason}}": rate("headrace_row_failures_total", "reason")}),
        Panel("Lost workers and sessions", "Losses while requests ran; sessions begun again.",
              {"lost": f"sum(increase(headrace_worker_losses_total{{{MODEL}}}[15m]))",
               "reconnected": "sum(increase(headrace_session_reconnects_total[15m])) or vector(0)"}),
        Panel("Device memory", "In use; alerts above 90 %.",
              {"{{instance}} {{device}}": "headrace_device_memory_used_bytes / headrace_device_memory_bytes"}, "percentunit"),
        Panel("Device use", "Share of time in which the device worked, and of an accelerator's warps in use.",
              {"{{instance}} {{device}}": "headrace_device_utilization_ratio",
               "{{instance}} occupancy": "headrace_device_sm_occupancy_ratio or vector(0)"}, "percentunit"),
        Panel("Perplexity of answers", "To the model itself, of a sample (quality-sample); a jump after a change is a reason to go back.",
              quantiles("headrace_generated_perplexity", 0.5, 0.9)),
        Panel("Variety of answers", "Share of different pairs and triples of tokens, of the same sample; near 0 they repeat themselves.",
              quantiles("headrace_generated_distinct_ratio", 0.5, by="n"), "percentunit"),
        Panel("Open descriptors", "By process; a line that only rises is a leak.",
              {"{{job}} {{instance}}": "process_open_file_descriptor_count"}),
    ],
)  # fmt: skip

TENANT = Board(
    "tenant",
    "Headrace: tenants",
    [
        Panel("Open requests", "Of tenants named by metric-tenants; all others are `other`.",
              {"{{tenant}} {{state}}": f"sum by (tenant, state) (headrace_tenant_requests{{{MODEL}}})"}),
        Panel("Generated tokens", "Each second: what a tenant gets of the machines.",
              {"{{tenant}}": rate("headrace_tenant_tokens_total", "tenant", select=f'{MODEL},kind="generation"')}),
        Panel("Prompt tokens", "Each second.",
              {"{{tenant}}": rate("headrace_tenant_tokens_total", "tenant", select=f'{MODEL},kind="prompt"')}),
        Panel("Share of generated tokens", "Over an hour, for quotas and bills.",
              {"{{tenant}}": f'sum by (tenant) (increase(headrace_tenant_tokens_total{{{MODEL},kind="generation"}}[1h]))'
                             f' / ignoring(tenant) group_left sum(increase(headrace_tenant_tokens_total{{{MODEL},kind="generation"}}[1h]))'},
              "percentunit"),
    ],
)  # fmt: skip

BOARDS = (OVERVIEW, QUEUE, WORKER, TENANT)
