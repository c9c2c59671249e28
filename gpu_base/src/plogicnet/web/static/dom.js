// Making elements. Every text goes in as text: no name of a graph is ever read as HTML.

export function element(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

export function shape(tag, properties = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), properties, children);
}

function fill(node, properties, children) {
  for (const [key, value] of Object.entries(properties)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value === true) node.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export const count = (number) => number.toLocaleString("en");
export const percent = (p) => (p > 0 && p < 0.001 ? "<0.1 %" : p < 1 && p > 0.999 ? ">99.9 %" : `${(100 * p).toFixed(1)} %`);
export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

// A name in a direction of its own, so that right-to-left text and its marks disturb nothing around it.
export const name = (text) => element("bdi", {}, text);

// The end of a name that is a long path or address, which is what tells such names apart.
export function brief(text) {
  if (text.length <= 32 || !/^[\p{L}\p{N}_:.~%/#-]+$/u.test(text)) return text;
  const parts = text.split(/(?=[/#])/);
  let kept = parts.pop();
  while (parts.length && kept.length + parts.at(-1).length <= 34) kept = parts.pop() + kept;
  return parts.length ? `…${kept}` : kept;
}

// A name's label, or nothing: labels are looked up as own keys, since a graph may name an entity `constructor`.
export const labelOf = (text, labels) => (Object.hasOwn(labels, text) ? labels[text] : null);

// A name as it is shown among others: by its label, or its end; the whole name is in the tooltip.
export function shown(text, labels) {
  const short = labelOf(text, labels) ?? brief(text);
  return element("bdi", { title: short === text ? null : text }, short);
}

export function shortened(text, most) {
  const letters = Array.from(text);
  if (letters.length <= most) return text;
  return text[0] === "…" ? `…${letters.slice(1 - most).join("")}` : `${letters.slice(0, most - 1).join("")}…`;
}

export function bar(share, known = false) {
  const filled = element("div", { class: "fill" });
  filled.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return element("div", { class: known ? "track known" : "track", "aria-hidden": "true" }, filled);
}

export const measure = (p, known = false) =>
  element("div", { class: "measure" }, bar(p, known), element("span", { class: "number" }, percent(p)));

export const address = (view, values = {}) => {
  const query = new URLSearchParams(Object.entries(values).filter(([, v]) => v !== null && v !== undefined && v !== ""));
  return `#/${view}${query.size ? `?${query}` : ""}`;
};

export async function get(path, values = {}, signal = undefined) {
  const query = new URLSearchParams(Object.entries(values).filter(([, v]) => v !== null && v !== undefined));
  const answer = await fetch(`/api/${path}?${query}`, { signal, headers: { accept: "application/json" } });
  const body = await answer.json().catch(() => ({ error: `the server answered ${answer.status}` }));
  if (!answer.ok) throw Object.assign(new Error(body.error), { status: answer.status });
  return body;
}
