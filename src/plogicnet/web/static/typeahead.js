// A field that finds names while they are typed: arrows choose, Enter takes, Escape closes.

import { count, element, get, name } from "./dom.js";

let fields = 0;
const DELAY = 90;

// `chosen` is called with the name; `value` gives the chosen name, or the text as typed, or null.
export function typeahead({ label, kind, placeholder, chosen, start = null, extra = [] }) {
  const id = `field-${++fields}`;
  const list = element("ul", { id: `${id}-list`, class: "options", role: "listbox", "aria-label": label, hidden: true });
  const input = element("input", {
    id, type: "text", role: "combobox", autocomplete: "off", autocapitalize: "off", spellcheck: "false", dir: "auto",
    placeholder, "aria-expanded": "false", "aria-controls": list.id, "aria-autocomplete": "list", maxlength: "8192",
  });
  const root = element("div", { class: "combo" }, element("label", { for: id }, label), input, extra, list);
  let taken = start, found = [], answered = null, at = -1, timer = 0, asked = null;
  const typed = () => input.value.trim();
  if (start !== null) input.value = start;

  function close() {
    clearTimeout(timer);
    asked?.abort();
    list.hidden = true;
    at = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }

  function mark(next) {
    at = next;
    [...list.children].forEach((option, i) => option.setAttribute("aria-selected", String(i === at)));
    if (at < 0) return input.removeAttribute("aria-activedescendant");
    input.setAttribute("aria-activedescendant", list.children[at].id);
    list.children[at].scrollIntoView({ block: "nearest" });
  }

  function take(entry) {
    taken = entry.name;
    input.value = entry.label ?? entry.name;
    close();
    chosen?.(entry.name);
  }

  function show() {
    list.replaceChildren(
      ...found.map((entry, i) =>
        element(
          "li",
          { id: `${id}-${i}`, role: "option", "aria-selected": "false", onpointerdown: (e) => e.preventDefault(), onclick: () => take(entry) },
          element("span", {}, name(entry.label ?? entry.name), entry.label ? element("span", { class: "soft small" }, name(entry.name)) : null),
          element("span", { class: "soft small number" }, count(entry.facts)),
        ),
      ),
    );
    if (!found.length) list.append(element("li", { class: "none" }, "no name like this"));
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    mark(found.length && typed() ? 0 : -1);
  }

  async function ask() {
    asked?.abort();
    asked = new AbortController();
    const text = typed();
    try {
      found = (await get("search", { q: text, kind }, asked.signal)).names;
      answered = text;
      if (document.activeElement === input) show();
    } catch (error) {
      if (error.name !== "AbortError") close();
    }
  }

  input.addEventListener("input", () => {
    taken = null;
    clearTimeout(timer);
    timer = setTimeout(ask, DELAY);
  });
  input.addEventListener("blur", close);
  input.addEventListener("keydown", async (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      if (list.hidden) return ask();
      if (found.length) mark(at < 0 && step < 0 ? found.length - 1 : (at + step + found.length) % found.length);
    } else if (event.key === "Enter") {
      // what the list answers may be an earlier text, of which nothing is taken
      if (!list.hidden && at >= 0 && answered === typed()) {
        event.preventDefault();
        take(found[at]);
      } else if (typed() && taken === null && (chosen || answered !== typed())) {
        event.preventDefault();
        clearTimeout(timer);
        await ask();
        if (answered !== typed()) return;
        if (found.length) take(found[0]);
        else input.form?.requestSubmit();
      }
    } else if (event.key === "Escape" && !list.hidden) {
      event.preventDefault();
      event.stopPropagation();
      close();
    }
  });

  const value = () => taken ?? (typed() || null);
  return { root, input, value, clear: () => { input.value = ""; taken = null; close(); } };
}
