// Helpers that create elements. Names are always inserted as text, never as HTML.

export function element(tag, properties = {}, ...children) {
  return setUp(document.createElement(tag), properties, children);
}

export function svgElement(tag, properties = {}, ...children) {
  return setUp(document.createElementNS("http://www.w3.org/2000/svg", tag), properties, children);
}

function setUp(node, properties, children) {
  for (const [key, value] of Object.entries(properties)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value === true) node.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export const formatCount = (number) => number.toLocaleString("en");
// A probability, written as in the commands (plogicnet.support.numbers).
export const formatProbability = (p) => (p > 0 && p < 0.0005 ? "<0.001" : p >= 0.9995 ? ">0.999" : p.toFixed(3));
export const pluralize = (number, singular, plural = `${singular}s`) => `${formatCount(number)} ${number === 1 ? singular : plural}`;

// A name with its own text direction, so that right-to-left names do not affect the text around them.
export const bdi = (text) => element("bdi", {}, text);

// The end of a name that is a long path or URL. Such names differ at the end.
export function shortName(text) {
  if (text.length <= 32 || !/^[\p{L}\p{N}_:.~%/#-]+$/u.test(text)) return text;
  const parts = text.split(/(?=[/#])/);
  let end = parts.pop();
  while (parts.length && end.length + parts.at(-1).length <= 34) end = parts.pop() + end;
  return parts.length ? `…${end}` : end;
}

// A name's label or null. Object.hasOwn is needed for names such as `constructor`.
export const labelOf = (text, labels) => (Object.hasOwn(labels, text) ? labels[text] : null);

// A name as it is displayed: its label or short name, with the full name as tooltip.
export function displayName(text, labels) {
  const short = labelOf(text, labels) ?? shortName(text);
  return element("bdi", { title: short === text ? null : text }, short);
}

export function truncate(text, maxLength) {
  const letters = Array.from(text);
  if (letters.length <= maxLength) return text;
  return text[0] === "…" ? `…${letters.slice(1 - maxLength).join("")}` : `${letters.slice(0, maxLength - 1).join("")}…`;
}

export function bar(share, known = false) {
  const filled = element("div", { class: "fill" });
  filled.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return element("div", { class: known ? "track known" : "track", "aria-hidden": "true" }, filled);
}

export const probabilityBar = (p, known = false) =>
  element("div", { class: "measure" }, bar(p, known), element("span", { class: "number" }, formatProbability(p)));

export const viewUrl = (view, values = {}) => {
  const query = new URLSearchParams(Object.entries(values).filter(([, v]) => v !== null && v !== undefined && v !== ""));
  return `#/${view}${query.size ? `?${query}` : ""}`;
};

export async function getJson(path, values = {}, signal = undefined) {
  const query = new URLSearchParams(Object.entries(values).filter(([, v]) => v !== null && v !== undefined));
  const response = await fetch(`/api/${path}?${query}`, { signal, headers: { accept: "application/json" } });
  const body = await response.json().catch(() => ({ error: `the server responded with status ${response.status}` }));
  if (!response.ok) throw Object.assign(new Error(body.error), { status: response.status });
  return body;
}
