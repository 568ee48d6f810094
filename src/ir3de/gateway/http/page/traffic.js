// Live traffic, looked at every two seconds while the view is open.

import { askJSON } from "./api.js";
import { histogram, rateChart } from "./charts.js";
import { colour, learn, named } from "./colors.js";
import { find, make, milliseconds, number, percent, say, tell } from "./dom.js";

const EVERY = 2000;
let timer = 0;
let asking = null;

async function look() {
  clearTimeout(timer);
  asking?.abort();
  const mine = (asking = new AbortController());
  try {
    const found = await askJSON("admin/traffic", { signal: mine.signal });
    if (mine !== asking) return;
    tell(find("traffic-notice"), "");
    show(found);
  } catch (error) {
    if (error.name === "AbortError" || mine !== asking) return;
    tell(find("traffic-notice"), why(error));
    if (error.status === 401) {
      document.dispatchEvent(new CustomEvent("ir3de-keys-wanted", { detail: "admin" }));
      return; // until a token is given
    }
  }
  timer = setTimeout(look, document.hidden ? EVERY * 5 : EVERY);
}

export function why(error) {
  if (error.status === 401) return "The admin token is needed here: open Keys above.";
  return error.status ? error.message : "The gateway cannot be reached.";
}

function show(found) {
  const totals = found.totals;
  const bad = totals.requests ? totals.errors / totals.requests : 0;
  const tiles = [
    ["Requests", number(totals.requests), since(found.since)],
    ["In flight", number(totals.in_flight), "at this moment"],
    ["Errors", number(totals.errors), totals.requests ? `${bad ? (100 * bad).toFixed(1) : 0} %` : ""],
    ["Cancelled", number(totals.cancelled), "by clients"],
    ["Abstained", number(totals.abstained), totals.requests ? percent(totals.abstained / totals.requests) : ""],
  ];
  const place = find("totals");
  if (place.children.length !== tiles.length) {
    place.replaceChildren(...tiles.map(() => make("div", {}, make("dt"), make("dd"), make("dd", { class: "quiet" }))));
  }
  tiles.forEach((texts, index) => texts.forEach((text, part) => say(place.children[index].children[part], text)));
  rateChart(find("rate"), found.per_second);
  const last = found.per_second.at(-2) || found.per_second.at(-1);
  say(find("rate-now"), last ? `${number(last.requests)} a second` : "");
  histogram(find("confidence"), found.confidence.edges, found.confidence.counts);
  learn(found.experts.map((one) => one.expert));
  const most = Math.max(1, ...found.experts.map((one) => one.requests));
  document.querySelector("#by-expert tbody").replaceChildren(...found.experts.map((one) => line(one, most)));
}

function since(seconds) {
  const minutes = Math.max(0, Math.round((Date.now() / 1000 - seconds) / 60));
  if (minutes < 1) return "since a moment ago";
  return minutes < 120 ? `in ${minutes} min` : `in ${Math.round(minutes / 60)} h`;
}

function line(one, most) {
  const cell = (text, name, worth = false) => make("td", { class: worth ? "worth" : "", "data-name": name }, text);
  const share = make("span", { class: "track", vars: { "--share": one.requests / most, "--colour": colour(one.expert) } }, make("i"));
  return make(
    "tr",
    { "data-expert": one.expert },
    make("th", { scope: "row" }, named(one.expert)),
    make("td", { class: "share" }, share, make("span", {}, number(one.requests)), make("span", { class: "quiet" }, percent(one.share))),
    cell(milliseconds(one.p50_ms ?? NaN), "p50"),
    cell(milliseconds(one.p99_ms ?? NaN), "p99"),
    cell(milliseconds(one.ttft_p50_ms ?? NaN), "First token"),
    cell(number(one.errors), "Errors", one.errors > 0),
    cell(`${number(one.fallbacks_from)} / ${number(one.fallbacks_to)}`, "Fallbacks", one.fallbacks_from > 0),
    cell(number(one.tokens), "Tokens"),
    cell(one.cost ? one.cost.toFixed(one.cost < 1 ? 4 : 2) : "–", "Cost"),
  );
}

export const traffic = {
  show: look,
  hide() {
    clearTimeout(timer);
    asking?.abort();
    asking = null;
  },
};
