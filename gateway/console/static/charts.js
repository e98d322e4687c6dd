// Curves since the page was opened, five minutes at most. Quantiles come from the histograms that Prometheus scrapes: of what was counted between two looks.
import { drawn, element, seconds } from "./page.js";

const KEEP_MS = 300_000;
const WINDOW_MS = 30_000;
const LEAST_MS = 30_000;
const WIDTH = 300, HEIGHT = 100;
const count = (value) => value.toFixed(0);

const CURVES = [
  { title: "Time to first token", histogram: "headrace_time_to_first_token_seconds", shown: seconds },
  { title: "Time per output token", histogram: "gen_ai_server_time_per_output_token_seconds", shown: seconds },
  { title: "Whole request", histogram: "headrace_e2e_request_latency_seconds", shown: seconds },
  { title: "Requests", names: ["waiting", "running"], shown: count, of: requests },
  { title: "Tokens per second", names: ["tokens/s"], shown: count, of: (overview) => [total(overview, "tokens_per_s")] },
  { title: "KV cache in use", names: ["of all workers"], shown: (value) => `${value.toFixed(0)} %`, of: kv },
];

function total(overview, name) {
  return overview.queues.reduce((sum, queue) => sum + Number(queue[name]), 0);
}

function requests(overview) {
  const waiting = overview.queues.flatMap((queue) => queue.classes).reduce((sum, one) => sum + Number(one.num_waiting), 0);
  return [waiting, total(overview, "num_running")];
}

function kv({ workers }) {
  const blocks = (name) => workers.reduce((sum, worker) => sum + worker[name], 0);
  return [blocks("kv_blocks") ? (100 * blocks("kv_blocks_used")) / blocks("kv_blocks") : 0];
}

export class Charts {
  constructor(place) {
    this.curves = CURVES.map((curve) => new Curve(curve, place));
  }

  add(overview, metrics) {
    const now = Date.now();
    for (const curve of this.curves) curve.add(now, overview, metrics);
  }
}

class Curve {
  constructor(settings, place) {
    Object.assign(this, { names: ["p50", "p99"], ...settings });
    this.points = [];
    this.counted = [];
    this.figure = element("figure");
    const caption = element("figcaption", settings.title);
    this.values = element("span", "no requests yet", "values");
    caption.append(this.values);
    this.svg = drawn("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
    this.lines = this.names.map((_, index) => drawn("polyline", { class: index ? "second" : "first" }));
    this.svg.append(...this.lines);
    this.figure.append(caption, this.svg);
    place.append(this.figure);
  }

  add(now, overview, metrics) {
    const values = this.histogram ? this.quantiles(now, metrics) : this.of(overview);
    this.points.push({ now, values });
    while (this.points[0].now < now - KEEP_MS) this.points.shift();
    this.draw(now);
  }

  quantiles(now, metrics) {
    this.counted.push({ now, buckets: bucketsOf(metrics, this.histogram) });
    while (this.counted.length > 1 && this.counted[1].now <= now - WINDOW_MS) this.counted.shift();
    const [first, last] = [this.counted[0].buckets, this.counted.at(-1).buckets];
    const grown = last.map(([bound, number]) => [bound, number - (first.find(([other]) => other === bound)?.[1] ?? 0)]);
    return [0.5, 0.99].map((share) => quantile(grown, share));
  }

  draw(now) {
    const seen = this.points.flatMap((point) => point.values).filter((value) => value !== null);
    const width = Math.max(LEAST_MS, now - this.points[0].now);
    const top = Math.max(1e-9, ...seen) * 1.1;
    this.lines.forEach((line, index) => {
      const places = this.points.filter((point) => point.values[index] !== null).map((point) => {
        const x = WIDTH * (1 - (now - point.now) / width);
        return `${x.toFixed(1)},${(HEIGHT * (1 - point.values[index] / top)).toFixed(1)}`;
      });
      line.setAttribute("points", places.join(" "));
    });
    const latest = this.points.at(-1).values;
    const told = this.names.map((name, index) => latest[index] === null ? null : `${name} ${this.shown(latest[index])}`);
    this.values.textContent = told.filter(Boolean).join(" · ") || "no requests of late";
    this.svg.setAttribute("aria-label", `${this.title}: ${this.values.textContent}; highest ${this.shown(seen.length ? top / 1.1 : 0)}`);
  }
}

// [[upper bound, how many in all so far], …] over all labels, in rising order.
export function bucketsOf(metrics, name) {
  const sums = new Map();
  for (const line of metrics.split("\n")) {
    if (!line.startsWith(`${name}_bucket{`)) continue;
    const bound = Number(/[{,]le="([^"]+)"/.exec(line)[1].replace("+Inf", "Infinity"));
    sums.set(bound, (sums.get(bound) ?? 0) + Number(line.slice(line.lastIndexOf("}") + 1).trim().split(" ")[0]));
  }
  return [...sums].sort((a, b) => a[0] - b[0]);
}

// As Prometheus' histogram_quantile: evenly spread inside a bucket; null where nothing was counted.
export function quantile(buckets, share) {
  const all = buckets.at(-1)?.[1] ?? 0;
  if (all <= 0) return null;
  let [lower, below] = [0, 0];
  for (const [bound, number] of buckets) {
    if (number >= share * all) {
      if (bound === Infinity) return lower;
      return lower + (bound - lower) * (number === below ? 1 : (share * all - below) / (number - below));
    }
    [lower, below] = [bound, number];
  }
  return lower;
}
