// Small help for the pages; everything but the live update and the keys works without it.
"use strict";

const POLL_MS = 1000;
const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

// Theme
$("#theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("otel-gym-theme", root.dataset.theme); } catch { /* not kept */ }
});
$("#help").addEventListener("click", () => $("#keys").showModal());

// Live: ask whether the page would be another one now, and put the new one in place of the old.
const live = document.body.dataset.live;
let version = document.body.dataset.version;
let asking = false;

async function follow() {
  if (asking || document.hidden) return;
  asking = true;
  const lamp = $("#live");
  try {
    const answer = await fetch(live, { headers: { accept: "application/json" } });
    if (answer.status === 404) return say(lamp, "gone", "It was cleared or removed; the page shows how it was");
    if (!answer.ok) throw new Error(answer.statusText);
    const now = (await answer.json()).version;
    say(lamp, "live", "Follows the files");
    if (now !== version) {
      const page = await fetch(location.href);
      if (!page.ok) throw new Error(page.statusText);
      const fresh = new DOMParser().parseFromString(await page.text(), "text/html");
      replace(fresh);
      version = fresh.body.dataset.version;
      lamp.classList.remove("changed");
      void lamp.offsetWidth;
      lamp.classList.add("changed");
    }
  } catch {
    say(lamp, "lost", "The viewer does not answer; the page shows how it was");
  } finally {
    asking = false;
  }
}

function say(lamp, state, why) {
  lamp.classList.toggle("lost", state !== "live");
  lamp.title = why;
  $("span", lamp).textContent = state;
}

function replace(fresh) {
  const main = $("main");
  const field = main.contains(document.activeElement) && document.activeElement.matches("input, select") ? document.activeElement : null;
  const selection = field && field.matches("input") ? [field.selectionStart, field.selectionEnd] : null;
  if (field) {
    // A form that is being filled in stays; all around it is new.
    const form = field.closest("form");
    const there = form && $$("form", fresh).find((one) => one.className === form.className);
    if (there) there.replaceWith(document.adoptNode(form));
  }
  const open = $$("details[open] > summary", main).map((summary) => summary.textContent);
  const row = document.activeElement && document.activeElement.matches("[data-row]") ? document.activeElement.getAttribute("href") : null;
  const scrolled = $("#attempts") ? $("#attempts").scrollTop : 0;
  main.replaceChildren(...$("main", fresh).childNodes);
  for (const summary of $$("details > summary", main)) {
    if (open.includes(summary.textContent)) summary.parentElement.open = true;
  }
  if (field && main.contains(field)) {
    field.focus({ preventScroll: true });
    if (selection) field.setSelectionRange(...selection);
  }
  const list = $("#attempts");
  if (list) list.scrollTop = scrolled;
  if (row) { const same = $$("[data-row]", main).find((one) => one.getAttribute("href") === row); if (same) same.focus({ preventScroll: true }); }
}

// Of many attempts, the one of this page is in sight.
function center() {
  const list = $("#attempts");
  const row = list && $(".this", list);
  if (row) list.scrollTop = row.offsetTop - list.clientHeight / 2;
}
center();

if (live) {
  setInterval(follow, POLL_MS);
  document.addEventListener("visibilitychange", follow);
}

// Bodies and long texts come when they are asked for.
const SHOWN = 200000;

async function text(address) {
  const answer = await fetch(address);
  if (!answer.ok) throw new Error(answer.statusText);
  return answer.text();
}

const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\ufffb]|[\u{e0000}-\u{e0fff}]/gu;
const visible = (value) => value.replace(UNSEEN, (c) => {
  const code = c.codePointAt(0);
  return code < 0x100 ? "\\x" + code.toString(16).padStart(2, "0") : "\\u" + code.toString(16).padStart(4, "0");
});

document.addEventListener("toggle", async (event) => {
  const details = event.target;
  if (!(details instanceof HTMLElement) || !details.dataset.body || !details.open) return;
  const pre = $("pre", details);
  if (pre.dataset.filled) return;
  pre.dataset.filled = "yes";
  try {
    const body = await text(details.dataset.body);
    pre.textContent = visible(body.slice(0, SHOWN)) + (body.length > SHOWN ? `\n… ${(body.length - SHOWN).toLocaleString("en")} more characters: open it` : "");
  } catch (error) {
    pre.textContent = `cannot be read: ${error.message}`;
  }
}, true);

document.addEventListener("click", async (event) => {
  const more = event.target.closest("a[data-more]");
  const copy = event.target.closest("a[data-copy]");
  if (event.metaKey || event.ctrlKey || event.shiftKey) return;
  if (more) {
    event.preventDefault();
    try {
      $("pre", more.parentElement.previousElementSibling).textContent = visible(await text(more.href));
      more.parentElement.remove();
    } catch (error) { more.textContent = `cannot be read: ${error.message}`; }
  } else if (copy) {
    event.preventDefault();
    const label = copy.textContent;
    try {
      await navigator.clipboard.writeText(await text(copy.href));
      copy.textContent = "Copied";
      setTimeout(() => { copy.textContent = label; }, 1500);
    } catch { location.href = copy.href; }
  }
});

for (const select of $$(".filters select")) select.addEventListener("change", () => select.form.requestSubmit());

// Keys
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input, select, textarea")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if ($("#keys").open) return;
  const go = (relation) => { const link = $(`main a[rel=${relation}], header a[rel=${relation}]`); if (link) link.click(); };
  if (event.key === "j" || event.key === "k") {
    const rows = $$("[data-row]");
    const at = rows.indexOf(document.activeElement);
    const next = event.key === "j" ? Math.min(at + 1, rows.length - 1) : Math.max(at - 1, 0);
    if (rows[next]) rows[next].focus();
  } else if (event.key === "[") go("prev");
  else if (event.key === "]") go("next");
  else if (event.key === "u") go("up");
  else if (event.key === "t") $("#theme").click();
  else if (event.key === "?") $("#keys").showModal();
  else if (event.key === "/") { const filter = $("#filter"); if (filter) filter.focus(); }
  else return;
  event.preventDefault();
});

// Keys are heard from here on.
document.documentElement.dataset.ready = "";
