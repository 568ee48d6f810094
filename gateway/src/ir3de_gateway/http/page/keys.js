// The named keys of clients: what each may do, what it has used, and when that begins anew.

import { requestJSON } from "./api.js";
import { named } from "./colors.js";
import { count, find, list, make, number, percent, setText, showNotice } from "./dom.js";
import { showRefusal, showUnlocked } from "./locked.js";

const EVERY_MS = 2_000;
const NEARLY = 0.8; // of a limit: from here on its bar warns
const SCOPES = { inference: "use experts", route: "get decisions", models: "list models", metrics: "read metrics", admin: "change the gateway" };

let timer = 0;
let isShown = false;

async function look() {
  clearTimeout(timer);
  isShown = true;
  try {
    show(await requestJSON("admin/keys"));
    showUnlocked("keys");
  } catch (error) {
    if (showRefusal("keys", error)) return;
  }
  if (isShown) timer = setTimeout(look, EVERY_MS);
}

function show({ data, file, problem }) {
  showNotice(find("keys-problem"), problem ? `The keys file cannot be read, so the previous keys stay in force: ${problem}` : "");
  find("no-keys").hidden = data.length > 0 || Boolean(file);
  setText(find("keys-file"), file ? `${count(data.length, "key")}, from ${file}. The file is read again whenever it changes.` : "");
  find("key-list").replaceChildren(...data.map(drawKey));
}

function drawKey(key) {
  const state = key.disabled ? ["ill", "Switched off"] : isOver(key) ? ["ill", "Limit reached"] : hasExpired(key) ? ["ill", "Expired"] : ["well", "Active"];
  const may = [list(key.scopes.map((scope) => SCOPES[scope] ?? scope)) || "nothing"];
  if (key.experts) may.push(`only ${list(key.experts) || "no expert"}`);
  if (key.expires) may.push(`until ${describeDate(key.expires)}`);
  return make(
    "li",
    { class: "card key", "data-key": key.name },
    make("div", { class: "row" }, make("h2", {}, key.name), make("span", { class: `health ${state[0]}` }, state[1])),
    make("p", { class: "quiet" }, `May ${may.join("; ")}.`),
    make("dl", { class: "meters" }, ...listMeters(key).map(drawMeter)),
    drawExperts(key),
  );
}

const hasExpired = (key) => key.expires && Date.parse(key.expires) <= Date.now();
const isOver = (key) => listMeters(key).some((one) => one.limit !== null && one.used >= one.limit);

// What a key uses, with its limit or null, and when it begins anew.
function listMeters({ limits, used, resets }) {
  if (!used) return [];
  return [
    { name: "Requests, last minute", used: used.requests, limit: limits.requests_per_minute, resets: resets.requests },
    { name: "Tokens, last minute", used: used.tokens, limit: limits.tokens_per_minute, resets: resets.tokens },
    { name: "Requests in flight", used: used.concurrent, limit: limits.concurrent },
    { name: "Cost today", used: used.day.cost, limit: limits.budget_per_day, resets: resets.day, isCost: true },
    { name: "Cost this month", used: used.month.cost, limit: limits.budget_per_month, resets: resets.month, isCost: true },
  ].map((one) => ({ ...one, limit: one.limit ?? null }));
}

function drawMeter({ name, used, limit, resets, isCost }) {
  const shown = isCost ? cost : number;
  const share = limit === null ? 0 : limit ? Math.min(1, used / limit) : 1;
  const kind = limit === null ? "" : share >= 1 ? "ill" : share >= NEARLY ? "trying" : "well";
  const when = used > 0 && resets ? describeReset(resets, isCost) : "";
  const meter = limit === null ? null : make("span", { class: `track ${kind}`, vars: { "--share": share } }, share ? make("i") : null);
  return make(
    "div",
    {},
    make("dt", {}, name),
    make("dd", {}, limit === null ? `${shown(used)}, no limit` : `${shown(used)} of ${shown(limit)} (${percent(share)})`),
    make("dd", { class: "bar-of" }, meter),
    make("dd", { class: "quiet" }, limit === null ? "" : when),
  );
}

const cost = (value) => (value === 0 ? "0" : value < 0.01 ? value.toPrecision(2) : value.toFixed(2));

function describeReset(moment, isPeriod) {
  const seconds = Math.max(0, Math.round((Date.parse(moment) - Date.now()) / 1000));
  const [size, unit] = seconds >= 172_800 ? [86_400, "day"] : seconds >= 7_200 ? [3_600, "hour"] : seconds >= 120 ? [60, "minute"] : [1, "second"];
  const time = count(Math.round(seconds / size), unit);
  return isPeriod ? `begins anew in ${time} (${describeDate(moment)})` : `all free again in ${time}`;
}

const describeDate = (moment) => `${moment.slice(0, 16).replace("T", " ")} UTC`;

function drawExperts(key) {
  const rows = [...(key.by_expert ?? [])].sort((one, other) => other.cost - one.cost || other.requests - one.requests);
  if (!rows.length) return make("p", { class: "quiet" }, key.used ? "No answers this month." : "Nothing is counted for this key.");
  const items = rows.map((one) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, named(one.expert)),
      make("td", {}, number(one.requests)),
      make("td", {}, number(one.tokens)),
      make("td", {}, cost(one.cost)),
    ),
  );
  const head = ["Expert, this month", "Requests", "Tokens", "Cost"].map((name) => make("th", { scope: "col" }, name));
  const estimated = rows.reduce((sum, one) => sum + (one.estimated || 0), 0);
  const table = make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...items));
  const note = estimated ? make("p", { class: "quiet" }, `The tokens of ${count(estimated, "answer")} are estimated, because the expert did not report them.`) : null;
  return make("div", { class: "by-expert" }, table, note);
}

export const keysView = {
  show: look,
  hide() {
    isShown = false;
    clearTimeout(timer);
  },
};
