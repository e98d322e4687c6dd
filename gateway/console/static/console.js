// The console: asks for the whole each second and shows it. What comes from the system is set as text, never as markup.
import { Charts } from "./charts.js";
import { showTimeline } from "./timeline.js";
import { element, fill, seconds } from "./page.js";

const EVERY_MS = 1000;
const STALLED_S = 5;
const CLASSES = ["PRIORITY_CRITICAL", "PRIORITY_HIGH", "PRIORITY_NORMAL", "PRIORITY_BATCH"];
const byId = (id) => document.getElementById(id);
const charts = new Charts(byId("charts"));
let paused = false;

class Refused extends Error {}

async function ask(path) {
  const key = sessionStorage.getItem("key");
  const answer = await fetch(path, key ? { headers: { Authorization: `Bearer ${key}` } } : {});
  if (answer.status === 401) throw new Refused();
  if (!answer.ok) {
    const told = await answer.json().catch(() => ({}));
    throw new Error(told.error || `the gateway answered ${answer.status}`);
  }
  return answer.headers.get("Content-Type").startsWith("application/json") ? answer.json() : answer.text();
}

function problem(text) {
  byId("problem").hidden = !text;
  byId("problem").textContent = text;
}

async function refresh() {
  if (!paused && !document.hidden && !byId("key").open) {
    try {
      const [overview, metrics] = await Promise.all([ask("overview"), ask("/metrics")]);
      if (!paused) show(overview); // rows stay, also when the answer was already on its way
      charts.add(overview, metrics);
      problem("");
    } catch (error) {
      if (error instanceof Refused) byId("key").showModal();
      else problem(`Nothing new since ${new Date().toLocaleTimeString()}: ${error.message}`);
    }
  }
  setTimeout(refresh, EVERY_MS);
}

function show({ queues, workers, gateway }) {
  const waiting = sum(queues.flatMap((queue) => queue.classes), (one) => one.num_waiting);
  const running = sum(queues, (queue) => queue.num_running);
  const tokens = sum(queues, (queue) => queue.tokens_per_s);
  byId("whole").textContent =
    `${waiting} waiting · ${running} running · ${workers.length} workers · ${tokens.toFixed(0)} tokens/s · gateway ${gateway}`;
  fill(byId("queues"), queues.map(queueCells), "no model has been served yet");
  fill(byId("workers"), workers.map(workerCells), "no worker is connected");
  fill(byId("tenants"), tenantCells(queues), "no request is open");
  const oldest = queues.flatMap((queue) => (queue.oldest ?? []).map((one) => ({ ...one, model: queue.model })));
  oldest.sort((a, b) => parseFloat(b.age) - parseFloat(a.age));
  fill(byId("oldest"), oldest.slice(0, 20).map(requestCells), "no request is open");
}

const sum = (list, value) => list.reduce((total, one) => total + Number(value(one)), 0);

function queueCells(queue) {
  const of = Object.fromEntries(queue.classes.map((one) => [one.priority, one]));
  const oldest = Math.max(0, ...queue.classes.map((one) => parseFloat(one.oldest_age)));
  return [
    queue.model, queue.partition, queue.leader || element("span", "none", "bad"),
    ...CLASSES.map((name) => Number(of[name]?.num_waiting ?? 0)),
    seconds(oldest), sum(queue.classes, (one) => one.waiting_tokens), queue.num_running,
    queue.drain_rate.toFixed(1), queue.tokens_per_s.toFixed(0),
  ];
}

function workerCells(worker) {
  const share = worker.kv_blocks ? worker.kv_blocks_used / worker.kv_blocks : 0;
  const meter = element("meter");
  Object.assign(meter, { max: 1, high: 0.9, optimum: 0, value: share });
  meter.setAttribute("aria-label", `KV cache of ${worker.worker_id}`);
  const kv = element("span");
  kv.append(meter, ` ${(share * 100).toFixed(0)} %`);
  const age = parseFloat(worker.last_step_age);
  const stalled = worker.num_running > 0 && age > STALLED_S;
  const state = worker.draining ? "draining" : stalled ? "stalled" : "serving";
  return [
    worker.worker_id, worker.model, worker.model_revision.slice(0, 12), `${worker.num_running}/${worker.max_seqs}`,
    kv, seconds(age), element("span", state, state === "serving" ? "good" : "bad"),
  ];
}

function tenantCells(queues) {
  const totals = new Map();
  for (const one of queues.flatMap((queue) => queue.tenants)) {
    const [waiting, running] = totals.get(one.tenant) ?? [0, 0];
    totals.set(one.tenant, [waiting + one.num_waiting, running + one.num_running]);
  }
  const rows = [...totals].map(([tenant, counts]) => [tenant, ...counts]);
  return rows.sort((a, b) => b[1] + b[2] - a[1] - a[2]).slice(0, 12);
}

function requestCells(one) {
  const open = element("button", one.request_id, "link");
  open.type = "button";
  open.dataset.key = one.request_id;
  open.addEventListener("click", () => lookUp(one.request_id));
  const name = (text, prefix) => text.replace(prefix, "").toLowerCase();
  return [
    open, one.model, one.tenant, name(one.priority, "PRIORITY_"), name(one.status, "REQUEST_STATUS_"),
    seconds(parseFloat(one.age)), one.tokens, one.worker_id || "–",
  ];
}

async function lookUp(id) {
  try {
    showTimeline(byId("timeline"), byId("timeline-body"), id, await ask(`request?id=${encodeURIComponent(id)}`));
  } catch (error) {
    if (error instanceof Refused) byId("key").showModal();
    else problem(error.message);
  }
}

function setTheme(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  localStorage.setItem("theme", theme);
  byId("theme").textContent = `Theme: ${theme}`;
}

function turnTheme() {
  const themes = ["system", "light", "dark"];
  setTheme(themes[(themes.indexOf(localStorage.getItem("theme")) + 1) % themes.length]);
}

function togglePause() {
  paused = !paused;
  byId("pause").setAttribute("aria-pressed", String(paused));
  byId("pause").textContent = paused ? "Resume" : "Pause";
}

byId("pause").addEventListener("click", togglePause);
byId("theme").addEventListener("click", turnTheme);
byId("lookup").addEventListener("submit", (event) => {
  event.preventDefault();
  lookUp(byId("wanted").value.trim());
});
byId("key-form").addEventListener("submit", () => {
  sessionStorage.setItem("key", byId("secret").value);
  byId("secret").value = "";
});
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA)$/.test(event.target.tagName)) return;
  const act = { "/": () => byId("wanted").focus(), p: togglePause, t: turnTheme }[event.key];
  if (act && !document.querySelector("dialog[open]")) {
    event.preventDefault();
    act();
  }
});
setTheme(localStorage.getItem("theme") ?? "system");
refresh();
