// Prompts whose labels would help most, one by one, with the keyboard; and prompts that fit no expert.

import { explainError, request, requestJSON } from "./api.js";
import { learn, named } from "./colors.js";
import { count, find, make, percent, setText, showNotice } from "./dom.js";
import { showRefusal, showUnlocked } from "./locked.js";

const AT_ONCE = 20;

let prompts = [];
let experts = [];
let place = 0;
let given = []; // the places that were labelled, for undo
let isShown = false;
let isBusy = false;

async function look() {
  isShown = true;
  if (prompts.length) return;
  try {
    const found = await requestJSON(`admin/labels/next?n=${AT_ONCE}`);
    [prompts, experts, place, given] = [found.data, found.experts, 0, []];
    learn(experts);
    showUnlocked("label");
    showPrompt();
    showDomains(await requestJSON("admin/labels/domains"));
  } catch (error) {
    showRefusal("label", error);
  }
}

function showPrompt() {
  const one = prompts[place];
  find("label-prompt").hidden = find("label-skip").hidden = !one;
  find("label-more").hidden = Boolean(one);
  find("label-undo").disabled = !given.length;
  setText(find("label-place"), one ? `${place + 1} of ${prompts.length}, asked ${one.requests === 1 ? "once" : `${one.requests} times`}` : "");
  setText(find("label-done"), given.length ? `${count(given.length, "label")} kept.` : one ? "" : "No prompt is left to label.");
  if (!one) return find("label-experts").replaceChildren();
  setText(find("label-prompt"), one.text);
  const ranked = one.ranking.map(([name]) => name);
  const shares = new Map(one.ranking);
  const names = [...ranked, ...experts.filter((name) => !ranked.includes(name))];
  find("label-experts").replaceChildren(
    ...names.map((name, index) => {
      const key = index < 9 ? make("kbd", {}, String(index + 1)) : null;
      const share = shares.has(name) ? make("span", { class: "quiet" }, percent(shares.get(name))) : null;
      return make("li", {}, make("button", { class: "button", type: "button", "data-expert": name, on: { click: () => choose(name) } }, key, " ", named(name), " ", share));
    }),
  );
}

// One label at a time: a key that is held down labels nothing twice.
async function work(action) {
  if (isBusy) return;
  isBusy = true;
  try {
    await action();
    showNotice(find("label-notice"), "");
  } catch (error) {
    showNotice(find("label-notice"), explainError(error));
  } finally {
    isBusy = false;
    showPrompt();
  }
}

const choose = (expert) =>
  work(async () => {
    await request("admin/labels", { method: "POST", body: { request_id: prompts[place].request, expert } });
    given.push(place);
    place += 1;
  });

const undo = () =>
  work(async () => {
    if (!given.length) return;
    await request(`admin/labels/${encodeURIComponent(prompts[given.at(-1)].request)}`, { method: "DELETE" });
    place = given.pop();
  });

function skip() {
  if (isBusy || !prompts[place]) return;
  place += 1;
  showPrompt();
}

function press(event) {
  const isElsewhere = !isShown || event.ctrlKey || event.altKey || event.metaKey || event.repeat || document.querySelector("dialog[open]");
  if (isElsewhere || event.target.closest("input, select, textarea")) return;
  if (event.key === "s") skip();
  else if (event.key === "u") undo();
  else find("label-experts").querySelectorAll("button")[/^[1-9]$/.test(event.key) ? Number(event.key) - 1 : -1]?.click();
}

function showDomains({ data, router, folder }) {
  find("domains").hidden = !data.length;
  find("domain-list").replaceChildren(
    ...data.map((one, index) =>
      make(
        "li",
        {},
        make("h3", {}, one.words.join(", ") || "various"),
        make("p", {}, `These ${count(one.requests, "request")} fit no expert: add one?`),
        make("ul", { class: "samples" }, ...one.examples.map((text) => make("li", { class: "quiet" }, text))),
        make("pre", { tabindex: "0" }, `ir3de label ${router} --from ${folder} --take ${index + 1} -o new.jsonl\nir3de add ${router} NAME=new.jsonl`),
      ),
    ),
  );
}

document.addEventListener("keydown", press);
find("label-skip").addEventListener("click", skip);
find("label-undo").addEventListener("click", undo);
find("label-more").addEventListener("click", () => {
  prompts = [];
  look();
});

export const label = {
  show: look,
  hide() {
    isShown = false;
  },
};
