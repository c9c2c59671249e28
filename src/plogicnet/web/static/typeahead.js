// A text field with suggestions: arrows select a name, Enter accepts it, Escape closes the list.

import { bdi, element, formatCount, getJson } from "./dom.js";

let fieldCount = 0;
const DELAY_MS = 90;

// `onChoose` is called with the chosen name. `value()` returns the chosen name, the typed text, or null.
export function typeahead({ label, kind, placeholder, onChoose, start = null, extra = [] }) {
  const id = `field-${++fieldCount}`;
  const list = element("ul", { id: `${id}-list`, class: "options", role: "listbox", "aria-label": label, hidden: true });
  const input = element("input", {
    id, type: "text", role: "combobox", autocomplete: "off", autocapitalize: "off", spellcheck: "false", dir: "auto",
    placeholder, "aria-expanded": "false", "aria-controls": list.id, "aria-autocomplete": "list", maxlength: "8192",
  });
  const root = element("div", { class: "combo" }, element("label", { for: id }, label), input, extra, list);
  let chosen = start, suggestions = [], suggestedFor = null, selected = -1, timer = 0, request = null;
  const typed = () => input.value.trim();
  if (start !== null) input.value = start;

  function close() {
    clearTimeout(timer);
    request?.abort();
    list.hidden = true;
    selected = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }

  function select(index) {
    selected = index;
    [...list.children].forEach((option, i) => option.setAttribute("aria-selected", String(i === selected)));
    if (selected < 0) return input.removeAttribute("aria-activedescendant");
    input.setAttribute("aria-activedescendant", list.children[selected].id);
    list.children[selected].scrollIntoView({ block: "nearest" });
  }

  function choose(entry) {
    chosen = entry.name;
    input.value = entry.label ?? entry.name;
    close();
    onChoose?.(entry.name);
  }

  function show() {
    list.replaceChildren(
      ...suggestions.map((entry, i) =>
        element(
          "li",
          { id: `${id}-${i}`, role: "option", "aria-selected": "false", onpointerdown: (e) => e.preventDefault(), onclick: () => choose(entry) },
          element("span", {}, bdi(entry.label ?? entry.name), entry.label ? element("span", { class: "soft small" }, bdi(entry.name)) : null),
          element("span", { class: "soft small number" }, formatCount(entry.facts)),
        ),
      ),
    );
    if (!suggestions.length) list.append(element("li", { class: "none" }, "no matching name"));
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    select(suggestions.length && typed() ? 0 : -1);
  }

  async function search() {
    request?.abort();
    request = new AbortController();
    const text = typed();
    try {
      suggestions = (await getJson("search", { q: text, kind }, request.signal)).names;
      suggestedFor = text;
      if (document.activeElement === input) show();
    } catch (error) {
      if (error.name !== "AbortError") close();
    }
  }

  input.addEventListener("input", () => {
    chosen = null;
    clearTimeout(timer);
    timer = setTimeout(search, DELAY_MS);
  });
  input.addEventListener("blur", close);
  input.addEventListener("keydown", async (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      if (list.hidden) return search();
      if (suggestions.length) select(selected < 0 && step < 0 ? suggestions.length - 1 : (selected + step + suggestions.length) % suggestions.length);
    } else if (event.key === "Enter") {
      // ignore suggestions for an earlier text
      if (!list.hidden && selected >= 0 && suggestedFor === typed()) {
        event.preventDefault();
        choose(suggestions[selected]);
      } else if (typed() && chosen === null && (onChoose || suggestedFor !== typed())) {
        event.preventDefault();
        clearTimeout(timer);
        await search();
        if (suggestedFor !== typed()) return;
        if (suggestions.length) choose(suggestions[0]);
        else input.form?.requestSubmit();
      }
    } else if (event.key === "Escape" && !list.hidden) {
      event.preventDefault();
      event.stopPropagation();
      close();
    }
  });

  const value = () => chosen ?? (typed() || null);
  return { root, input, value, clear: () => { input.value = ""; chosen = null; close(); } };
}
