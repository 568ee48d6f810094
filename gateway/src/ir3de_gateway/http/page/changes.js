// What changes: the traffic, the candidate router, and the versions of the router.

import { explainError, requestJSON } from "./api.js";
import { learn, named } from "./colors.js";
import { count, draw, find, make, number, percent, setText, showNotice } from "./dom.js";
import { showRefusal, showUnlocked } from "./locked.js";
import { takesFeedback } from "./rating.js";

const EVERY_MS = 5_000;
const MOST_CHARTS = 12;
const STATES = { none: "No candidate is configured.", trial: "It is tried.", stopped: "It was stopped.", withdrawn: "Its trial was ended.", promoted: "It was promoted.", live: "It is the live router." };
const VERDICTS = { open: "nothing is proven yet", worse: "it is worse", better: "it is better, and may be promoted" };

let timer = 0;
let isShown = false;

async function look() {
  clearTimeout(timer);
  isShown = true;
  try {
    const [candidate, history] = await Promise.all([requestJSON("admin/candidate"), requestJSON("admin/router/history")]);
    showCandidate(candidate);
    showHistory(history.data);
    showDrift((await takesFeedback()) ? await requestJSON("admin/drift") : null);
    showUnlocked("changes");
  } catch (error) {
    if (showRefusal("changes", error)) return;
  }
  if (isShown) timer = setTimeout(look, EVERY_MS);
}

// Only what differs is drawn again, so that the focus stays where it is.
function fill(id, data, ...children) {
  const place = find(id);
  const content = JSON.stringify(data);
  if (place.dataset.shown === content) return;
  place.dataset.shown = content;
  place.replaceChildren(...children.filter(Boolean));
}

// the traffic ----------------------------------------------------------------------------------------------------------

function showDrift(found) {
  if (!found) return fill("drift", null, make("p", { class: "quiet" }, "This gateway keeps no journal: feedback.folder names one."));
  const { changes, windows } = found;
  const learning = found.is_learning ?? true;
  const state = learning ? `${number(found.reference_prompts ?? 0)} of ${number(found.wanted_prompts ?? 4000)} requests are known: then changes can be found.` : changes.length ? "" : "No change was found.";
  const experts = [...new Set(windows.flatMap((one) => Object.keys(one.experts)))];
  const rows = [...experts.map((name) => [named(name), windows.map((one) => (one.experts[name] ?? 0) / one.prompts)]), ["none fits", windows.map((one) => one.abstained / one.prompts)]];
  fill(
    "drift",
    found,
    state ? make("p", { class: "quiet" }, state) : null,
    changes.length ? make("ul", { class: "alarms" }, ...changes.map((one) => make("li", {}, `${one.summary}.`))) : null,
    windows.length > 1 ? make("dl", { class: "shares" }, ...rows.slice(-MOST_CHARTS).map(([name, shares]) => make("div", {}, make("dt", {}, name), make("dd", {}, drawShares(shares), ` ${percent(shares.at(-1))}`)))) : null,
  );
}

function drawShares(shares) {
  const most = Math.max(...shares, 0.01);
  const bars = shares.map((share, place) => draw("rect", { x: place * 4, y: (24 - (share / most) * 24).toFixed(2), width: 3, height: ((share / most) * 24).toFixed(2), class: "bar" }));
  return draw("svg", { viewBox: `0 0 ${shares.length * 4} 24`, class: "spark", role: "img", "aria-label": `${shares.length} windows, from ${percent(shares[0])} to ${percent(shares.at(-1))}` }, ...bars);
}

// the candidate --------------------------------------------------------------------------------------------------------

function showCandidate(found) {
  const { test, state } = found;
  const rows = [];
  const row = (name, value) => value && rows.push(make("div", {}, make("dt", {}, name), make("dd", {}, value)));
  row("Router", found.router);
  row("Mode", found.mode && (found.mode === "canary" ? `canary, ${percent(found.share)} of the conversations` : "shadow"));
  row("Agreement", test?.requests ? `${percent(1 - test.disagreements / test.requests)} of ${count(test.requests, "request")}` : null);
  row("Evidence", test ? `${number(Math.round(test.against))} against it, ${number(Math.round(test.in_favour))} in its favour; ${number(Math.round(1 / test.level))} decide` : null);
  row("Verdict", test ? VERDICTS[test.verdict] : null);
  row("Why", found.ended?.why);
  const buttons = [
    make("button", { class: "button primary", type: "button", id: "promote", on: { click: promote } }, "Promote"),
    make("button", { class: "button", type: "button", id: "withdraw", on: { click: withdraw } }, "Stop the trial"),
  ];
  fill("candidate", found, make("p", { class: "quiet" }, STATES[state] ?? state), rows.length ? make("dl", { class: "facts" }, ...rows) : null, state === "trial" ? make("div", { class: "buttons" }, ...buttons) : null);
}

const promote = () => confirmThat("Promote the candidate?", "It becomes the live router. The one before is kept, and can be rolled back to.", "Promote", () => change("admin/candidate/promote", { method: "POST", body: { why: "on the page" } }));
const withdraw = () => confirmThat("Stop the trial?", "The live router serves alone.", "Stop", () => change("admin/candidate?why=on%20the%20page", { method: "DELETE" }));

// versions -------------------------------------------------------------------------------------------------------------

function showHistory(versions) {
  learn(versions.find((one) => one.live)?.experts ?? []);
  fill("versions", versions, ...versions.map(drawVersion));
}

function drawVersion(one) {
  const accuracy = one.proof?.accuracy;
  const proof = Number.isFinite(accuracy) ? `, ${percent(accuracy)} right on held-out prompts` : "";
  const roll = () => confirmThat(`Roll back to version ${one.number}?`, "It serves at once. The version that serves now is kept.", "Roll back", () => change("admin/router/rollback", { method: "POST", body: { to: String(one.number), why: "on the page" } }));
  const button = one.kept && !one.live ? make("button", { class: "button small", type: "button", "data-version": one.number, on: { click: roll } }, "Roll back") : null;
  return make(
    "li",
    { class: "row" },
    make(
      "div",
      {},
      make("p", {}, make("b", {}, `Version ${one.number}`), one.live ? make("span", { class: "health well" }, " Live") : null, ` ${one.action}${one.who ? ` by ${one.who}` : ""}, ${one.time.slice(0, 16).replace("T", " ")} UTC`),
      make("p", { class: "quiet" }, `${one.digest.slice(0, 12)}, ${count(one.experts.length, "expert")}${proof}${one.why ? `. ${one.why}` : ""}`),
    ),
    button,
  );
}

// changes --------------------------------------------------------------------------------------------------------------

function confirmThat(title, text, yes, action) {
  const dialog = find("confirm");
  setText(find("confirm-title"), title);
  setText(find("confirm-text"), text);
  setText(find("confirm-yes"), yes);
  dialog.returnValue = "";
  dialog.onclose = () => dialog.returnValue === "yes" && action();
  dialog.showModal();
}

async function change(path, options) {
  try {
    await requestJSON(path, options);
    showNotice(find("changes-notice"), "");
  } catch (error) {
    return showNotice(find("changes-notice"), explainError(error));
  }
  look();
}

export const changes = {
  show: look,
  hide() {
    isShown = false;
    clearTimeout(timer);
  },
};
