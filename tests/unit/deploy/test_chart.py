"""The Helm chart: valid for Kubernetes, and every command, port, probe and setting in it exists in the code."""

import base64
import copy
import re
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from cryptography.fernet import Fernet
from helm_python import HelmError, lint
from opentelemetry.sdk.resources import Resource

from common.metrics import Metrics
from common.readiness import Liveness, Readiness
from common.settings import read_settings
from common.status_endpoint import StatusEndpoint
from gateway import app as gateway_app
from gateway.settings import GatewaySettings
from scheduler import serve as scheduler_serve
from scheduler.settings import SchedulerSettings
from tests.support.chart import CHART, EVERYTHING, REDIS, manifests, pods
from tests.support.operators import refused
from tests.support.time_scale import scaled
from worker.settings import WorkerSettings

ROOT = Path(__file__).parents[3]
SETTINGS: dict[str, type] = {
    "gateway": GatewaySettings,
    "scheduler": SchedulerSettings,
    "worker": WorkerSettings,
}
HEALTH_NAMES = {
    "gateway": {"", gateway_app.INFERENCE, gateway_app.ADMIN},
    "scheduler": {"", scheduler_serve.WORKERS},
}
KUBERNETES = ("1.29", "1.34")
# Of operators: Kubernetes' own schemas know nothing of them.
CUSTOM = {"ServiceMonitor", "PrometheusRule", "ScaledObject"}
VALUES = pytest.mark.parametrize("values", [REDIS, EVERYTHING], ids=["least", "everything"])


@pytest.mark.parametrize("version", KUBERNETES)
@VALUES
def test_kubernetes_accepts_it(values, version):
    """Each manifest fits the schema of the oldest and the newest version that is supported, unknown fields refused."""
    documents = manifests(values)
    for document in documents:
        if document["kind"] not in CUSTOM:
            kubernetes_validate.validate(document, version, strict=True)
    assert {one["kind"] for one in documents} >= {
        *("Deployment", "Service", "PodDisruptionBudget", "Secret", "NetworkPolicy"),
        "PersistentVolumeClaim",
    }


@pytest.mark.timeout(scaled(600))
def test_operators_accept_it():
    """Each custom resource fits the schema of its operator; a wrong value or an unknown field anywhere would be told."""
    custom = [one for one in manifests(EVERYTHING) if one["kind"] in CUSTOM]
    assert {one["kind"] for one in custom} == CUSTOM
    broken = copy.deepcopy({one["kind"]: one for one in custom})
    broken["ServiceMonitor"]["spec"]["endpoints"][0]["interval"] = "5 seconds"
    broken["PrometheusRule"]["spec"]["groups"][0]["rules"][0]["annotation"] = {}
    broken["ScaledObject"]["spec"]["fallback"]["behavior"] = "grow"
    told = refused([*custom, *broken.values()])
    for field, kind in (("interval", "ServiceMonitor"), ("annotation", "PrometheusRule"), ("behavior", "ScaledObject")):  # fmt: skip
        assert any(field in line and line.startswith(kind) for line in told), told
    assert not refused(custom)


@VALUES
def test_every_service_is_spared_and_fenced(values):
    """A disruption budget and a network policy select the pods of each service; gateways scale where that is wanted."""
    documents = manifests(values)

    def selects(kind: str, field: str, labels: dict[str, str]) -> bool:
        chosen = [one["spec"][field]["matchLabels"] for one in documents if one["kind"] == kind]
        return any(wanted.items() <= labels.items() for wanted in chosen)

    deployments = {name: pod for name, pod in pods(values) if name.startswith("hr-")}
    services = {name: pod for name, pod in deployments.items() if "models" not in name}
    assert services.keys() == {"hr-gateway", "hr-scheduler", "hr-worker-default"}
    for pod in services.values():
        labels = pod["metadata"]["labels"]
        assert selects("PodDisruptionBudget", "selector", labels)
        assert selects("NetworkPolicy", "podSelector", labels)
    scalers = [one for one in documents if one["kind"] == "HorizontalPodAutoscaler"]
    targets = [one["spec"]["scaleTargetRef"]["name"] for one in scalers]
    assert targets == (["hr-gateway"] if values is EVERYTHING else [])


def test_lint_and_schema():
    """Helm finds nothing, a wrong value is refused, and Redis has to be named."""
    assert not lint(CHART)["errors"]
    with pytest.raises(HelmError, match="where is Redis"):
        manifests({})
    with pytest.raises(HelmError):
        manifests({**REDIS, "gateway": {"stopGraceS": "long"}})
    with pytest.raises(HelmError):
        manifests({**REDIS, "redis": {"adress": "x"}})


def service_containers(values) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Service, pod and container of everything that runs a service."""
    return [
        (container["name"], pod["spec"], container)
        for _, pod in pods(values)
        for container in pod["spec"]["containers"]
        if container["name"] in SETTINGS
    ]


def settings_of(service: str, container: dict[str, Any]) -> Any:
    """The settings that the service would read in the container, where a file of keys is mounted."""
    environment = {}
    with tempfile.NamedTemporaryFile() as keys:
        keys.write(Fernet.generate_key())
        keys.flush()
        for variable in container["env"]:
            value = variable.get("value") or "redis://secret:6379/0"
            if "fieldRef" in variable.get("valueFrom", {}):
                value = "10.0.0.1"
            if value.startswith("/etc/headrace/"):
                value = keys.name
            environment[variable["name"]] = value.replace("$(POD_IP)", "10.0.0.1")
        return read_settings(SETTINGS[service], [], environment, prog=f"headrace-{service}")


@VALUES
def test_commands_and_settings_exist(values):
    """Each command is one that the package installs, and reads its environment without complaint."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    found = service_containers(values)
    assert {service for service, _, _ in found} == SETTINGS.keys()
    for service, _, container in found:
        (command,) = container["command"]
        assert scripts[command] == f"{service}.__main__:main"
        settings = settings_of(service, container)
        assert settings.metrics_host == "0.0.0.0"
        if service == "gateway":
            assert settings.require_keys
            assert settings.admin_key
            assert (settings.admin_host, settings.admin_port) == ("0.0.0.0", 50053)
        if service == "scheduler":
            assert settings.advertise_address == "10.0.0.1:50052"


@VALUES
def test_ports_and_probes_exist(values):
    """What is exposed is what the service binds by default; probes ask for paths and names that are answered."""
    with StatusEndpoint("127.0.0.1", 0, Metrics(Resource({})), Readiness(), Liveness()) as served:
        paths = {path for path in ("/livez", "/readyz", "/") if served.answer(path, {})[0] != 404}
    for service, _, container in service_containers(values):
        settings = settings_of(service, container)
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert ports["metrics"] == settings.metrics_port
        if service != "worker":
            assert ports["grpc"] == settings.grpc_port
        if service == "gateway":
            assert ports["http"] == settings.chosen_http_port
            assert ports["admin"] == settings.admin_port
            assert settings.http_host == "0.0.0.0"
        for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
            probe = container[kind]
            if "grpc" in probe:
                assert probe["grpc"]["port"] == ports["grpc"]
                assert probe["grpc"]["service"] in HEALTH_NAMES[service]
            else:
                assert probe["httpGet"]["port"] in ports
                assert probe["httpGet"]["path"] in paths


@VALUES
def test_services_lead_to_ports_of_their_pods(values):
    """Each port of a Service is a named port of the pods that it selects; so is each port of a policy."""
    templates = [pod for _, pod in pods(values)]
    for document in manifests(values):
        if document["kind"] not in ("Service", "NetworkPolicy", "PodDisruptionBudget"):
            continue
        spec = document["spec"]
        selector = spec.get("podSelector", spec.get("selector"))
        selector = selector.get("matchLabels", selector)
        chosen = [t for t in templates if selector.items() <= t["metadata"]["labels"].items()]
        assert chosen, (document["kind"], document["metadata"]["name"])
        wanted = {port["targetPort"] for port in spec.get("ports", ())}
        wanted |= {port["port"] for rule in spec.get("ingress", ()) for port in rule["ports"]}
        for template in chosen:
            names = {p["name"] for c in template["spec"]["containers"] for p in c["ports"]}
            assert wanted <= names


@VALUES
def test_a_stop_has_the_time_it_needs(values):
    """Kubernetes kills only after the service's own grace, of which a worker's drain is a part."""
    for service, pod, container in service_containers(values):
        settings = settings_of(service, container)
        assert pod["terminationGracePeriodSeconds"] > settings.stop_grace_s + 5
        if service == "worker":
            assert settings.stop_grace_s > settings.drain_grace_s


@VALUES
def test_pods_are_confined(values):
    """No root, no writable file system, no capabilities, no variables that Kubernetes makes up."""
    for name, pod in pods(values):
        spec = pod["spec"]
        assert spec["enableServiceLinks"] is False, name
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        for container in [*spec["containers"], *spec.get("initContainers", ())]:
            confined = container["securityContext"]
            assert confined["readOnlyRootFilesystem"] is True
            assert confined["allowPrivilegeEscalation"] is False
            assert confined["capabilities"]["drop"] == ["ALL"]


def test_workers_scale_by_our_own_queue_metric():
    """The autoscaler's query names metrics that exist, of this model, and keeps workers while Prometheus is away."""
    (scaled,) = [one for one in manifests(EVERYTHING) if one["kind"] == "ScaledObject"]
    (trigger,) = scaled["spec"]["triggers"]
    query = trigger["metadata"]["query"]
    source = (ROOT / "common/metrics.py").read_text()
    names = re.findall(r"headrace_\w+", query)
    assert len(names) == 2
    assert all(f'"{name}"' in source for name in names)
    assert query.count('model_name="default"') == 2
    assert scaled["spec"]["fallback"]["behavior"] == "currentReplicasIfHigher"
    (deployment,) = [one for one in manifests(EVERYTHING) if one["metadata"]["name"] == "hr-worker-default" and one["kind"] == "Deployment"]  # fmt: skip
    assert "replicas" not in deployment["spec"], "the autoscaler's business"


def test_encryption_keys_come_from_a_secret():
    """Gateways and schedulers read the file that is mounted, by a key that Fernet takes; workers never see it."""
    for service, pod, container in service_containers(EVERYTHING):
        places = [v["value"] for v in container["env"] if v["name"] == "HEADRACE_ENCRYPTION_KEYS"]
        mounts = {m["name"]: m["mountPath"] for m in container["volumeMounts"]}
        if service == "worker":
            assert not places
            assert "encryption" not in mounts
            continue
        (secret,) = [v["secret"] for v in pod["volumes"] if v["name"] == "encryption"]
        made = next(
            one
            for one in manifests(EVERYTHING)
            if one["kind"] == "Secret" and one["metadata"]["name"] == secret["secretName"]
        )
        assert places == [f"{mounts['encryption']}/{name}" for name in made["data"]]
        (key,) = made["data"].values()
        Fernet(base64.b64decode(key))
    named = {**REDIS, "encryption": {"enabled": True, "existingSecret": "mine"}}
    assert not [one for one in manifests(named) if one["metadata"]["name"] == "hr-encryption"]
    volumes = [v for _, pod, _ in service_containers(named) for v in pod["volumes"]]
    assert [v["secret"]["secretName"] for v in volumes if v["name"] == "encryption"] == 2 * [
        "mine"
    ]


def test_operators_have_a_port_that_nobody_else_reaches():
    """Closed by the policy unless somebody is let in; without the port it is nowhere."""

    def admitted(values) -> list[Any]:
        (policy,) = [
            one
            for one in manifests(values)
            if one["kind"] == "NetworkPolicy" and one["metadata"]["name"] == "hr-gateway"
        ]
        rules = policy["spec"]["ingress"]
        return [rule["from"] for rule in rules if {"port": "admin"} in rule["ports"]]

    assert admitted(REDIS) == []
    assert admitted(EVERYTHING) == [EVERYTHING["gateway"]["admin"]["allowFrom"]]  # type: ignore[index]
    without = {**REDIS, "gateway": {"admin": {"enabled": False}}}
    assert "admin" not in {
        port["name"] for _, _, one in service_containers(without) for port in one["ports"]
    }
    (gateway,) = [c for service, _, c in service_containers(without) if service == "gateway"]
    assert settings_of("gateway", gateway).admin_port is None


def test_gateways_without_keys_say_so():
    """Required by default; whoever does without has decided it."""
    (name,) = {s for s, _, _ in service_containers(REDIS)} & {"gateway"}
    values = {**REDIS, "gateway": {"keys": {"required": False}}}
    (container,) = [c for service, _, c in service_containers(values) if service == name]
    settings = settings_of(name, container)
    assert settings.allow_unauthenticated
    assert not settings.require_keys
    assert len([one for one in manifests(values) if one["kind"] == "Secret"]) == 1


def test_models_are_filled_once_and_checked():
    """Other checksums make another job; workers wait for exactly the contents that they are meant to serve."""
    changed = copy.deepcopy(EVERYTHING)
    changed["models"]["checksums"] = "1  default/config.json\n"
    jobs = [
        {one["metadata"]["name"] for one in manifests(values) if one["kind"] == "Job"}
        for values in (EVERYTHING, changed)
    ]
    assert len(jobs[0] | jobs[1]) == 2
    ((_, job),) = [one for one in pods(EVERYTHING) if one[0] in jobs[0]]
    assert "sha256sum -c" in job["spec"]["containers"][0]["command"][2]
    worker = next(pod for name, pod in pods(EVERYTHING) if name == "hr-worker-default")
    assert "SHA256SUMS" in worker["spec"]["initContainers"][0]["command"][2]
