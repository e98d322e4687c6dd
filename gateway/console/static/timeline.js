// One request: its stages on a line, and the facts below.
import { drawn, element, fill, seconds } from "./page.js";

const KINDS = { queue: "queue", "queue and prefill": "queue", prefill: "prefill", decode: "decode" };

export function showTimeline(dialog, place, id, found) {
  document.getElementById("timeline-title").textContent = `Request ${id}`;
  place.replaceChildren(stagesOf(found.stages), tableOf(found.stages), factsOf(found), ...historyOf(found.history));
  if (!dialog.open) dialog.showModal();
}

function stagesOf(stages) {
  const end = Math.max(1e-9, ...stages.map((stage) => stage.end_s));
  const told = stages.map((stage) => `${stage.name} ${seconds(stage.end_s - stage.begin_s)}`).join(", ");
  const line = drawn("svg", { class: "stages", viewBox: "0 0 1000 10", preserveAspectRatio: "none", role: "img", "aria-label": told });
  for (const stage of stages) {
    const [x, width] = [(1000 * stage.begin_s) / end, (1000 * (stage.end_s - stage.begin_s)) / end];
    line.append(drawn("rect", { class: `stage-${KINDS[stage.name]}`, x, y: 0, width: Math.max(2, width), height: 10 }));
  }
  return line;
}

function table(head, rows) {
  const made = element("table");
  const row = made.createTHead().insertRow();
  for (const name of head) {
    const cell = element("th", name);
    cell.scope = "col";
    row.append(cell);
  }
  made.createTBody();
  fill(made, rows, "nothing");
  return made;
}

function tableOf(stages) {
  return table(["Stage", "From", "To", "Took"], stages.map((stage) => {
    const name = element("span");
    const swatch = drawn("svg", { class: "swatch", viewBox: "0 0 10 10", "aria-hidden": "true" });
    swatch.append(drawn("rect", { class: `stage-${KINDS[stage.name]}`, width: 10, height: 10 }));
    name.append(swatch, ` ${stage.name}`);
    return [name, seconds(stage.begin_s), seconds(stage.end_s), seconds(stage.end_s - stage.begin_s)];
  }));
}

function factsOf(found) {
  const list = element("dl");
  const usage = found.usage;
  const facts = {
    Status: found.status,
    Model: found.model,
    Tenant: found.tenant,
    Class: found.class,
    Accepted: new Date(found.accepted_ms).toLocaleString(),
    "Expires": new Date(found.deadline_ms).toLocaleString(),
    Worker: found.worker_id,
    Attempts: found.attempts,
    Tokens: `${usage.prompt_tokens} in (${usage.cached_prompt_tokens} cached), ${usage.completion_tokens} out`,
    "Waits for": found.waiting_for,
    "Cancelled by": found.cancel,
    Failure: found.failure,
    Trace: found.trace_id,
  };
  for (const [name, value] of Object.entries(facts)) {
    if (value !== "" && value !== undefined) list.append(element("dt", name), element("dd", value));
  }
  return list;
}

function historyOf(history) {
  if (!history.length) return [];
  const rows = history.map((one) => [one.worker_id, seconds(one.after_s), one.tokens, one.outcome]);
  return [element("h3", "Attempts"), table(["Worker", "Dispatched after", "Tokens", "Ended by"], rows)];
}
