// Live traffic, from the gateway's Prometheus metrics. The browser keeps their history while the page is open.

import { request, explainError } from "./api.js";
import { histogram, rateChart } from "./charts.js";
import { colour, named } from "./colors.js";
import { find, make, milliseconds, number, percent, setText, showNotice } from "./dom.js";
import { parseMetrics, subtractMetrics, summarise, sumOf } from "./metrics.js";
import { showRequests } from "./requests.js";

const POLL_MS = 2_000;
const BACKGROUND_POLL_MS = 10_000; // while another view or another tab is shown
const WINDOW_MS = 300_000; // of "last 5 minutes"
const SNAPSHOT_MS = 15_000; // between two scrapes that are kept whole
const BARS = 60;
const BAR_MS = 2_000;

const opened = Date.now();
let isShown = false;
let timer = 0;
let pending = null;
let totals = []; // {time, requests}, for the chart
let snapshots = []; // {time, samples}, for "last 5 minutes"
let latest = [];

async function poll() {
  clearTimeout(timer);
  pending?.abort();
  const mine = (pending = new AbortController());
  try {
    const response = await request("metrics", { signal: mine.signal });
    const samples = parseMetrics(await response.text());
    if (mine !== pending) return;
    keep(samples);
    showNotice(find("traffic-notice"), "");
    if (isShown) show();
  } catch (error) {
    if (mine !== pending) return;
    showNotice(find("traffic-notice"), explainError(error));
  }
  timer = setTimeout(poll, isShown && !document.hidden ? POLL_MS : BACKGROUND_POLL_MS);
}

function keep(samples) {
  const time = Date.now();
  const requests = sumOf(samples, "ir3de_requests_total");
  if (requests < (totals.at(-1)?.requests ?? 0)) [totals, snapshots] = [[], []]; // the gateway was restarted
  totals = [...totals.filter((one) => one.time > time - BARS * BAR_MS - 2 * BACKGROUND_POLL_MS), { time, requests }];
  if (time - (snapshots.at(-1)?.time ?? 0) >= SNAPSHOT_MS) snapshots.push({ time, samples });
  while (snapshots.length > 1 && snapshots[1].time <= time - WINDOW_MS) snapshots.shift();
  latest = samples;
}

// Requests counted up to a moment: linear between two polls, because the counters are read only then.
function requestsUpTo(time) {
  const after = totals.findIndex((one) => one.time >= time);
  if (after === 0) return totals[0].requests;
  if (after < 0) return totals.at(-1)?.requests ?? 0;
  const [before, next] = [totals[after - 1], totals[after]];
  return before.requests + ((next.requests - before.requests) * (time - before.time)) / (next.time - before.time);
}

function computeRates() {
  const end = totals.at(-1)?.time ?? Date.now();
  return Array.from({ length: BARS }, (_, index) => {
    const start = end - (BARS - index) * BAR_MS;
    return ((requestsUpTo(start + BAR_MS) - requestsUpTo(start)) * 1000) / BAR_MS;
  });
}

function show() {
  const recent = find("period").value === "recent";
  const summary = summarise(recent ? subtractMetrics(latest, snapshots[0]?.samples ?? []) : latest, latest);
  const rates = computeRates();
  showTotals(summary.totals, recent ? describeWindow() : "since the gateway started");
  rateChart(find("rate"), rates, BAR_MS / 1000);
  setText(find("rate-now"), `${number(Math.round(10 * rates.at(-1)) / 10)} per second`);
  setText(find("history-note"), Date.now() - opened < BARS * BAR_MS ? "Counted since this page was opened." : "");
  histogram(find("confidence"), summary.confidence.edges, summary.confidence.counts);
  const most = Math.max(1, ...summary.experts.map((expert) => expert.requests));
  document.querySelector("#by-expert tbody").replaceChildren(...summary.experts.map((expert) => makeRow(expert, most)));
}

function describeWindow() {
  const minutes = Math.round((Date.now() - (snapshots[0]?.time ?? Date.now())) / 60_000);
  if (minutes >= WINDOW_MS / 60_000) return `in the last ${minutes} minutes`;
  return minutes < 1 ? "since this page was opened" : `in ${minutes} min, since this page was opened`;
}

function showTotals(totals, period) {
  const ratio = (count) => (totals.requests ? count / totals.requests : 0);
  const tiles = [
    ["Requests", number(totals.requests), period],
    ["In flight", number(totals.inFlight), "now"],
    ["Errors", number(totals.errors), totals.requests ? `${totals.errors ? (100 * ratio(totals.errors)).toFixed(1) : 0} %` : ""],
    ["Cancelled", number(totals.cancelled), "by clients"],
    ["Abstained", number(totals.abstained), totals.requests ? percent(ratio(totals.abstained)) : ""],
  ];
  const place = find("totals");
  if (place.children.length !== tiles.length) {
    place.replaceChildren(...tiles.map(() => make("div", {}, make("dt"), make("dd"), make("dd", { class: "quiet" }))));
  }
  tiles.forEach((texts, index) => texts.forEach((text, part) => setText(place.children[index].children[part], text)));
}

function makeRow(expert, most) {
  const cell = (text, name, isBad = false) => make("td", { class: isBad ? "worth" : "", "data-name": name }, text);
  const vars = { "--share": expert.requests / most, "--colour": colour(expert.name) };
  return make(
    "tr",
    { "data-expert": expert.name },
    make("th", { scope: "row" }, named(expert.name)),
    make(
      "td",
      { class: "share" },
      make("span", { class: "track", vars }, make("i")),
      make("span", {}, number(expert.requests)),
      make("span", { class: "quiet" }, percent(expert.share)),
    ),
    cell(milliseconds(expert.p50), "p50"),
    cell(milliseconds(expert.p99), "p99"),
    cell(milliseconds(expert.firstToken), "First token"),
    cell(number(expert.errors), "Errors", expert.errors > 0),
    cell(`${number(expert.fallbacksFrom)} / ${number(expert.fallbacksTo)}`, "Fallbacks", expert.fallbacksFrom > 0),
    cell(number(expert.tokens), "Tokens"),
    cell(expert.cost ? expert.cost.toFixed(expert.cost < 1 ? 4 : 2) : "–", "Cost"),
  );
}

find("period").addEventListener("change", show);
poll(); // from the beginning, so that there is a history when the view is opened

export const traffic = {
  show() {
    isShown = true;
    poll();
    showRequests();
  },
  hide() {
    isShown = false;
  },
};
