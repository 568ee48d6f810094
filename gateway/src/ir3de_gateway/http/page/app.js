// The frame: tabs, theme, keys.

import { keys } from "./api.js";
import { changes } from "./changes.js";
import { chat } from "./chat.js";
import { find } from "./dom.js";
import { experts } from "./experts.js";
import { keysView } from "./keys.js";
import { label } from "./label.js";
import { playground } from "./playground.js";
import { takesFeedback } from "./rating.js";
import { traffic } from "./traffic.js";

const views = { playground, chat, traffic, label, changes, experts, keys: keysView };
const tabs = [...document.querySelectorAll("[role=tab]")];
let shown = null;

function show(name, { focus = false } = {}) {
  if (!Object.hasOwn(views, name)) name = "playground";
  if (shown !== name) {
    views[shown]?.hide?.();
    for (const tab of tabs) {
      const chosen = tab.getAttribute("aria-controls") === name;
      tab.setAttribute("aria-selected", chosen);
      tab.tabIndex = chosen ? 0 : -1;
      find(tab.getAttribute("aria-controls")).hidden = !chosen;
    }
    shown = name;
    views[name].show();
    history.replaceState(null, "", location.pathname + location.search + (name === "playground" ? "" : `#${name}`));
  }
  if (focus) find(`tab-${name}`).focus();
}

function turnTabs(event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const offered = tabs.filter((tab) => !tab.hidden);
  const place = offered.indexOf(event.target);
  const next = step ? offered.at((place + step) % offered.length) : { Home: offered[0], End: offered.at(-1) }[event.key];
  if (!next) return;
  event.preventDefault();
  show(next.getAttribute("aria-controls"), { focus: true });
}

function setUpTheme() {
  const button = find("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (document.documentElement.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
  const reflect = () => button.setAttribute("aria-pressed", dark());
  button.addEventListener("click", () => {
    const next = dark() ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    try {
      localStorage.setItem("ir3de-theme", next);
    } catch {
      // then it lasts as long as the page
    }
    reflect();
  });
  system.addEventListener("change", reflect);
  reflect();
}

function setUpKeys() {
  const dialog = find("own-keys");
  const open = () => {
    if (dialog.open) return;
    find("api-key").value = keys.api;
    find("admin-token").value = keys.admin;
    dialog.returnValue = "";
    dialog.showModal();
  };
  find("open-keys").addEventListener("click", open);
  document.addEventListener("ir3de-keys-wanted", (event) => {
    open();
    find(event.detail === "admin" ? "admin-token" : "api-key").focus();
  });
  dialog.addEventListener("close", () => {
    if (dialog.returnValue !== "save") return;
    keys.keep(find("api-key").value, find("admin-token").value);
    views[shown].show();
  });
  for (const input of dialog.querySelectorAll("input")) {
    input.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return; // which would press the first button, and that is Cancel
      event.preventDefault();
      dialog.close("save");
    });
  }
}

setUpTheme();
setUpKeys();
for (const tab of tabs) {
  tab.addEventListener("click", () => show(tab.getAttribute("aria-controls")));
  tab.addEventListener("keydown", turnTabs);
}
addEventListener("hashchange", () => {
  keys.takeFromAddress();
  show(location.hash.slice(1));
});
show(location.hash.slice(1));
takesFeedback().then((takes) => (find("tab-label").hidden = !takes));
