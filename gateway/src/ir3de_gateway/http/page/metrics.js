// Reads the gateway's Prometheus metrics, and computes what the traffic view shows of them.

const SAMPLE = /^([\w:]+)(?:\{(.*)\})? (\S+)/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;
const FAILURES = ["upstream_error", "unavailable", "broken_stream", "failed"];
const CONFIDENCE_BINS = 10;

const parseBound = (text) => (text === "+Inf" ? Infinity : Number(text));
const unescapeLabel = (text) => text.replace(/\\(.)/g, (_, character) => (character === "n" ? "\n" : character));

// The samples of a scrape: {key, name, labels, value}. `key` identifies the time series.
export function parseMetrics(text) {
  const samples = [];
  for (const line of text.split("\n")) {
    const found = line.startsWith("#") ? null : SAMPLE.exec(line);
    if (!found) continue;
    const labels = {};
    for (const [, name, value] of (found[2] || "").matchAll(LABEL)) labels[name] = unescapeLabel(value);
    samples.push({ key: `${found[1]}{${found[2] || ""}}`, name: found[1], labels, value: Number(found[3]) });
  }
  return samples;
}

// What the counters have gained since an earlier scrape.
export function subtractMetrics(samples, earlier) {
  const before = new Map(earlier.map((sample) => [sample.key, sample.value]));
  return samples.map((sample) => ({ ...sample, value: sample.value - (before.get(sample.key) ?? 0) }));
}

function sumBy(samples, name, label, filter = () => true) {
  const sums = new Map();
  for (const sample of samples) {
    if (sample.name !== name || !filter(sample.labels)) continue;
    const key = label ? sample.labels[label] : "";
    sums.set(key, (sums.get(key) || 0) + sample.value);
  }
  return sums;
}

export const sumOf = (samples, name, filter) => sumBy(samples, name, "", filter).get("") || 0;

// Cumulative buckets by expert: Map of expert to [[upper bound, count], …] in ascending order.
function collectBuckets(samples, name) {
  const found = new Map();
  for (const { name: own, labels, value } of samples) {
    if (own !== `${name}_bucket`) continue;
    const expert = labels.expert ?? "";
    if (!found.has(expert)) found.set(expert, []);
    found.get(expert).push([parseBound(labels.le), value]);
  }
  for (const buckets of found.values()) buckets.sort((one, other) => one[0] - other[0]);
  return found;
}

// As Prometheus' histogram_quantile: linear inside a bucket, the last finite bound beyond it, NaN without observations.
export function quantile(buckets, share) {
  const total = buckets?.at(-1)?.[1] || 0;
  if (!total) return NaN;
  const rank = share * total;
  let [lower, below] = [0, 0];
  for (const [upper, count] of buckets) {
    if (count >= rank && count > below) {
      return upper === Infinity ? lower : lower + ((upper - lower) * (rank - below)) / (count - below);
    }
    [lower, below] = [upper, count];
  }
  return lower;
}

function binConfidence(samples) {
  const buckets = collectBuckets(samples, "ir3de_confidence").get("") || [];
  const upTo = (bound) => buckets.findLast(([upper]) => upper <= bound)?.[1] || 0;
  const edges = Array.from({ length: CONFIDENCE_BINS + 1 }, (_, index) => index / CONFIDENCE_BINS);
  const ends = [...edges.slice(1, -1), Infinity].map(upTo);
  return { edges, counts: ends.map((count, index) => count - (ends[index - 1] || 0)) };
}

// `counted` are counters over the time that is shown; `current` is the last scrape, for what is a state.
export function summarise(counted, current) {
  const requests = sumBy(counted, "ir3de_requests_total", "expert");
  const errors = sumBy(counted, "ir3de_requests_total", "expert", ({ outcome }) => FAILURES.includes(outcome));
  const [from, to] = ["from", "to"].map((label) => sumBy(counted, "ir3de_fallback_total", label));
  const tokens = sumBy(counted, "ir3de_tokens_total", "expert");
  const costs = sumBy(counted, "ir3de_cost_total", "expert");
  const upstream = collectBuckets(counted, "ir3de_upstream_seconds");
  const firstToken = collectBuckets(counted, "ir3de_ttft_seconds");
  const configured = current.filter((sample) => sample.name === "ir3de_breaker_state").map(({ labels }) => labels.expert);
  const others = [...requests].filter(([, count]) => count).map(([name]) => name);
  const all = [...requests.values()].reduce((sum, count) => sum + count, 0);
  const outcome = (wanted) => sumOf(counted, "ir3de_requests_total", (labels) => labels.outcome === wanted);
  return {
    totals: {
      requests: all,
      errors: [...errors.values()].reduce((sum, count) => sum + count, 0),
      cancelled: outcome("cancelled"),
      abstained: sumOf(counted, "ir3de_abstain_total"),
      inFlight: sumOf(current, "ir3de_in_flight"),
    },
    experts: [...new Set([...configured, ...others])].map((name) => ({
      name,
      requests: requests.get(name) || 0,
      share: all ? (requests.get(name) || 0) / all : 0,
      errors: errors.get(name) || 0,
      fallbacksFrom: from.get(name) || 0,
      fallbacksTo: to.get(name) || 0,
      p50: 1000 * quantile(upstream.get(name), 0.5),
      p99: 1000 * quantile(upstream.get(name), 0.99),
      firstToken: 1000 * quantile(firstToken.get(name), 0.5),
      tokens: tokens.get(name) || 0,
      cost: costs.get(name) || 0,
    })),
    confidence: binConfidence(counted),
  };
}
