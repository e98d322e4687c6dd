"""Puts the gateway together and runs it: the one place that knows all parts."""

import asyncio
import secrets
from collections.abc import Sequence

from common.content_plugins import load_filters
from common.health import HealthService, model_service_name
from common.server import CannotServe, Runtime
from common.streams.node import Node
from common.streams.shared_trips import SharedTrips
from gateway.access import Access
from gateway.admin_service import AdminService
from gateway.admit import ADMIT_BOUND_S, Admission
from gateway.aliases import Aliases
from gateway.attachment import Attachment
from gateway.audit import AuditLog
from gateway.background import Background
from gateway.boundary import Boundary
from gateway.cached import CachedGeneration
from gateway.caller import Callers
from gateway.calls import Calls
from gateway.catalogue import Catalogue
from gateway.console.console import Console
from gateway.dead_letters import DeadLetters
from gateway.forgetting import Forgetting
from gateway.generation import Generation
from gateway.held import HeldMessages
from gateway.http.routes import HttpParts, Routes
from gateway.http.server import HttpServer
from gateway.keyed import KeyedGeneration
from gateway.lookup import Lookup
from gateway.pool_metrics import PoolMetrics
from gateway.prepare import Preparation
from gateway.queue_views import QueueViews
from gateway.quotas import Quotas
from gateway.relay.relay import Relay
from gateway.servers import Servers
from gateway.service import InferenceService, Parts
from gateway.settings import LONGEST_LIFE_S, GatewaySettings
from gateway.story import Stories
from gateway.tenants import Tenants
from gateway.tokenize import PromptTokenizer
from headrace.v1 import admin_service_pb2, inference_service_pb2
from headrace.v1 import admin_service_pb2_grpc as admin_rpc
from headrace.v1 import inference_service_pb2_grpc as inference_rpc

INFERENCE = inference_service_pb2.DESCRIPTOR.services_by_name["InferenceService"].full_name
ADMIN = admin_service_pb2.DESCRIPTOR.services_by_name["AdminService"].full_name


async def serve(settings: GatewaySettings, runtime: Runtime) -> None:
    """Serve until a stop is asked for, then finish what is open."""
    node = Node(settings.redis_url, settings.vault())
    try:
        async with asyncio.TaskGroup() as tasks:
            gateway = Gateway(settings, runtime, node, tasks)
            with gateway.tokenizer, gateway.audit:
                await gateway.run()
    finally:
        await node.close()


class Gateway:
    """All parts of one gateway incarnation."""

    def __init__(
        self, settings: GatewaySettings, runtime: Runtime, node: Node, tasks: asyncio.TaskGroup
    ) -> None:
        """Nothing runs before ``run``."""
        self._settings = settings
        self._runtime = runtime
        self._node = node
        self._tasks = tasks
        log = runtime.log
        self.gateway_id = secrets.token_hex(8)
        self._background = Background(tasks, log)
        self._relay = Relay(
            node,
            self.gateway_id,
            self._background,
            log,
            keepalive_s=settings.keepalive_s,
            resume_grace_s=settings.resume_grace_s,
        )
        self.audit = AuditLog(settings.audit_log, log)
        self._stories = Stories(
            runtime.tracing,
            runtime.metrics,
            log,
            self.audit,
            trace_content=settings.trace_content,
            audit_content=settings.audit_content,
        )
        self._views = QueueViews(node, log)
        self._catalogue = Catalogue(node, self._views, log)
        self.tokenizer = PromptTokenizer(
            settings.tokenizer_threads, load_filters(settings.input_filters, "--input-filters")
        )
        access = Access(node, requires_keys=settings.require_keys, admin_key=settings.admin_key)
        self._callers = Callers(access)
        self._tls = settings.server_tls(log)
        self._held = HeldMessages(settings.max_message_bytes)
        boundary = Boundary(
            log,
            runtime.metrics.rpc_server_call_duration,
            self._admit,
            self.audit,
            self._held,
        )
        self._servers = Servers(settings, boundary, self._callers.require_operator, self._tls)
        self._health = HealthService(runtime.readiness, [INFERENCE, ADMIN])

    async def run(self) -> None:
        """Serve, then stop gracefully."""
        http = self._add_services()
        await self._servers.complete(self._health, INFERENCE, ADMIN)
        self._runtime.metrics.num_streams.watch(lambda: [(self._relay.num_followers, {})])
        PoolMetrics(self._catalogue, self._views).show(self._runtime.metrics)
        self._runtime.metrics.redis_errors.watch(lambda: [(self._node.num_errors, {})])
        places = self._servers.bind()
        running = [
            self._tasks.create_task(work, name=name)
            for name, work in (
                ("read own log", self._relay.readers.own.run()),
                ("keep alive", self._relay.run()),
                ("stay awake", self._relay.stay_awake()),
                ("models", self._catalogue.run()),
                ("health", self._health.follow()),
                ("state health", self._state_health()),
                ("http", http.run()),
            )
        ]
        Console(self.gateway_id, self._node, self._catalogue, self._views, self._callers).show(
            self._runtime
        )
        await self._servers.start()
        self._runtime.log.info("gateway", gateway_id=self.gateway_id)
        self._runtime.announce({**places, "http": http.url})
        await self._runtime.stopping.wait()
        await self._end_calls(http)
        # Before the last words: the lease, once given back, must not be renewed again.
        for task in running:
            task.cancel()
        await self._say_last_words()

    def _add_services(self) -> HttpServer:
        settings, runtime = self._settings, self._runtime
        trips = SharedTrips(
            self._node,
            lambda work, name: self._background.start(work, name, within_s=None),
            bound_s=ADMIT_BOUND_S,
        )
        admission = Admission(
            self._node,
            trips,
            self._relay,
            self._views,
            settings,
            runtime.tracing,
            runtime.metrics,
        )
        parts = self._parts(admission)
        inference_rpc.add_InferenceServiceServicer_to_server(
            InferenceService(parts), self._servers.public
        )
        dead_letters = DeadLetters(
            self._node, self._catalogue, admission, self._relay, runtime.log
        )
        admin = AdminService(
            self._node,
            self._catalogue,
            self._views,
            dead_letters,
            Tenants(self._node),
            Forgetting(self._node, self._catalogue),
            Aliases(self._node, self._catalogue),
        )
        admin_rpc.add_AdminServiceServicer_to_server(admin, self._servers.operators)
        routes = Routes(
            HttpParts(
                calls=parts.calls,
                callers=self._callers,
                preparation=parts.preparation,
                catalogue=self._catalogue,
                views=self._views,
                readiness=runtime.readiness,
                log=runtime.log,
                audit=self.audit,
                duration=runtime.metrics.http_server_request_duration,
                max_body_bytes=settings.max_message_bytes,
                held=self._held,
            )
        )
        try:
            return HttpServer(
                routes.app(), settings.http_host, settings.chosen_http_port, self._tls
            )
        except OSError as error:
            address = f"{settings.http_host}:{settings.chosen_http_port}"
            raise CannotServe(f"--http-port: cannot bind {address}") from error

    def _parts(self, admission: Admission) -> Parts:
        runtime, settings, lookup = (
            self._runtime,
            self._settings,
            Lookup(self._node, self._relay.recent_ends),
        )
        preparation = Preparation(
            self._catalogue,
            self.tokenizer,
            runtime.tracing,
            default_timeout_s=settings.default_timeout_s,
            longest_life_s=LONGEST_LIFE_S,
        )
        generation = Generation(
            preparation,
            Quotas(self._node, self._background, runtime.metrics),
            admission,
            self._relay,
        )
        attachment = Attachment(self._node, lookup, self._relay)
        calls = Calls(
            generation=generation,
            keyed=KeyedGeneration(
                self._node, preparation, generation, attachment, self._relay, self._background
            ),
            cached=CachedGeneration(
                self._node,
                preparation,
                generation,
                attachment,
                self._background,
                runtime.metrics,
            ),
            attachment=attachment,
            views=self._views,
            stories=self._stories,
            log=runtime.log,
            keepalive_s=settings.keepalive_s,
        )
        return Parts(
            self._node, self._catalogue, self._views, preparation, lookup, calls, self._callers
        )

    async def _admit(self, method: str, pairs: Sequence[tuple[str, str]]) -> None:
        if method.startswith(f"/{ADMIN}/"):
            self._callers.require_operator(pairs)
        else:
            await self._callers.require_known(pairs)

    async def _state_health(self) -> None:
        """Ready while Redis answers; a model while a worker serves it."""
        shown: dict[str, bool] = {}
        while True:
            look = self._views.next_look()
            healthy = await self._node.is_healthy()
            self._runtime.readiness.set(
                "redis", holds=healthy, detail="" if healthy else self._node.last_error or ""
            )
            serving = {
                m.card.model: self._views.num_workers(m) > 0 for m in self._catalogue.models
            }
            for name in serving.keys() - shown.keys():
                self._stories.show_counters(name)
            for name in serving.keys() | shown.keys():
                if serving.get(name, False) != shown.get(name):
                    await self._health.set_serving(
                        model_service_name(name), serving.get(name, False)
                    )
            shown = serving
            try:
                async with asyncio.timeout(1.0):
                    await look.wait()
            except TimeoutError:
                continue

    async def _end_calls(self, http: HttpServer) -> None:
        """No new calls; open ones finish, or are told to go on elsewhere."""
        settings = self._settings
        http.refuse()
        await self._health.stop()
        closing = self._tasks.create_task(
            self._servers.stop(settings.stop_grace_s), name="close server"
        )
        await self._relay.finish(settings.drain_s, settings.goodbye_s)
        # What is left are watchers, who would stay for ever: the shorter grace cuts the longer one.
        await asyncio.gather(
            self._servers.stop(settings.last_calls_s), http.stop(settings.last_calls_s)
        )
        await closing

    async def _say_last_words(self) -> None:
        """Who leaves which request, and that this gateway is no more; beside each other, for Redis may be away."""
        within_s = self._settings.last_words_s
        async with asyncio.TaskGroup() as words:
            words.create_task(self._background.settle(within_s))
            words.create_task(self._relay.release(within_s))
