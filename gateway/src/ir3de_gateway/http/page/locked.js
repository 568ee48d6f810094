// What a view shows that needs the admin token, where there is none, or a wrong one.

import { explainError, keys } from "./api.js";
import { find, make, showNotice } from "./dom.js";

const NO_ACCESS = [401, 403];

// Show why the gateway refused, and what to do; nothing else of the view is shown. True if it is about access.
export function showRefusal(view, error) {
  const isLocked = NO_ACCESS.includes(error.status);
  showNotice(find(`${view}-notice`), isLocked ? "" : explainError(error));
  const place = find(`${view}-locked`);
  place.hidden = !isLocked;
  find(`${view}-content`).hidden = isLocked;
  if (!isLocked) return false;
  const wrong = error.status === 401 && keys.admin;
  const title = wrong ? "The admin token of this tab is wrong" : "This view needs the admin token";
  if (place.dataset.shown === title + error.message) return true;
  place.dataset.shown = title + error.message;
  const open = () => document.dispatchEvent(new CustomEvent("ir3de-keys-wanted", { detail: "admin" }));
  place.replaceChildren(
    make("h2", {}, title),
    make("p", {}, ...explainError(error).split("`").map((part, index) => (index % 2 ? make("code", {}, part) : part)), "."),
    ...(wrong ? [make("p", { class: "quiet" }, "A gateway that was started again may have a new token.")] : []),
    ...(error.status === 401 ? [make("button", { class: "button primary", type: "button", on: { click: open } }, "Enter the token")] : []),
  );
  return true;
}

export function showUnlocked(view) {
  showNotice(find(`${view}-notice`), "");
  find(`${view}-locked`).hidden = true;
  find(`${view}-content`).hidden = false;
}
