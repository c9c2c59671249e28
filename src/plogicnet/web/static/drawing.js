// The drawing of an explanation: the explained fact as a dashed arrow, the premises as solid arrows.

import { labelOf, pluralize, shortName, svgElement, truncate, viewUrl } from "./dom.js";

const MAX_RULES = 5, GROUNDINGS_PER_RULE = 2, MAX_PATHS = 3, GAP = 6;

// The name by which `highlight` knows a path.
export const pathName = (index) => `path-${index}`;

// The facts of the strongest groundings and paths, each with the indices of the rules and the names of the paths that use it.
function collectFacts(why, maxBetween) {
  const [head, , tail] = why.triple;
  const facts = new Map(), between = new Set();
  const groundings = why.rules.slice(0, MAX_RULES).flatMap((rule, index) => rule.negative ? [] : rule.premises.slice(0, GROUNDINGS_PER_RULE).map((premises) => [index, premises]));
  const paths = why.paths.slice(0, MAX_PATHS).map(({ path }, index) => [pathName(index), path]);
  for (const [source, used] of [...groundings, ...paths]) {
    const added = used.flatMap(([h, , t]) => [h, t]).filter((e) => e !== head && e !== tail && !between.has(e));
    if (between.size + new Set(added).size > maxBetween) continue;
    added.forEach((e) => between.add(e));
    for (const fact of used) {
      const key = JSON.stringify(fact);
      if (!facts.has(key)) facts.set(key, { fact, rules: new Set() });
      facts.get(key).rules.add(source);
    }
  }
  return { facts: [...facts.values()], between };
}

// The number of facts between an entity and every other entity.
function distances(from, facts) {
  const result = new Map([[from, 0]]);
  for (const entity of result.keys()) {
    for (const { fact: [h, , t] } of facts) {
      const next = h === entity ? t : t === entity ? h : null;
      if (next !== null && !result.has(next)) result.set(next, result.get(entity) + 1);
    }
  }
  return result;
}

// The position of each entity along the line from head (0) to tail (1), and across it. Entities that are less than
// minDistance apart along the line are in different lanes.
function layOut(head, tail, facts, between, minDistance) {
  const fromHead = distances(head, facts), fromTail = distances(tail, facts);
  const lanes = [];
  for (const entity of between) {
    const [a, b] = [fromHead.get(entity) ?? 1, fromTail.get(entity) ?? 1];
    const along = a / (a + b);
    let lane = lanes.findIndex((placed) => placed.every((other) => Math.abs(other.along - along) >= minDistance));
    if (lane < 0) lane = lanes.push([]) - 1;
    lanes[lane].push({ entity, along });
  }
  const positions = new Map([[head, { along: 0, across: 0 }]]);
  if (tail !== head) positions.set(tail, { along: 1, across: 0 });
  lanes.forEach((placed, i) => placed.forEach(({ entity, along }) => positions.set(entity, { along, across: i - (lanes.length - 1) / 2 })));
  return { positions, widest: Math.max(1, lanes.length) };
}

export function drawing(why, labels, width) {
  const wide = width >= 620;
  const display = (text) => labelOf(text, labels) ?? shortName(text);
  const [head, relation, tail] = why.triple;
  const { facts, between } = collectFacts(why, wide ? 7 : 2);
  const box = wide ? { w: 168, h: 34, letters: 21 } : { w: 92, h: 32, letters: 11 };
  const minDistance = wide ? (box.w + 4 * GAP) / (width - box.w - 12) : (box.h + 2 * GAP) / 282;
  const { positions, widest } = layOut(head, tail, facts, between, minDistance);
  const direct = facts.filter(({ fact: [h, , t] }) => new Set([h, t, head, tail]).size <= 2).length;
  const bend = 46, step = wide ? 62 : box.w + 8;
  const span = (widest - 1) * step;
  const above = span / 2 + (between.size ? 48 : 20), below = direct ? span / 2 + (between.size ? 10 : 0) + direct * bend : span / 2 + 10;
  const W = width, H = wide ? above + below + box.h : 330;
  const at = (entity) => {
    const { along, across } = positions.get(entity);
    return wide
      ? { x: box.w / 2 + 6 + along * (W - box.w - 12), y: above + box.h / 2 + across * step }
      : { x: W / 2 + across * step, y: 24 + along * (H - 48) };
  };
  const svg = svgElement("svg", { class: "drawing", viewBox: `0 0 ${W} ${H}`, width: W, height: H, role: "group", "aria-label": `${pluralize(facts.length, "known fact")} behind this fact` });
  const arrows = [], arrowLabels = [];

  // The point where the line from the middle of a box to another point leaves the box.
  function boxEdge(from, to) {
    const dx = to.x - from.x, dy = to.y - from.y;
    const scale = Math.min((box.w / 2 + GAP) / Math.max(Math.abs(dx), 1e-6), (box.h / 2 + GAP) / Math.max(Math.abs(dy), 1e-6));
    return { x: from.x + dx * Math.min(scale, 1), y: from.y + dy * Math.min(scale, 1) };
  }

  function arrow(a, b, text, offset, kind, rules = "", labelAt = 0.5) {
    const [p, q] = [at(a), at(b)];
    const loop = a === b;
    const length = Math.hypot(q.x - p.x, q.y - p.y) || 1;
    // the same side for both directions of an arrow
    const sign = p.x < q.x || (p.x === q.x && p.y < q.y) ? 1 : -1;
    const normal = { x: (sign * -(q.y - p.y)) / length, y: (sign * (q.x - p.x)) / length };
    const middle = loop
      ? { x: p.x, y: p.y + (offset || bend) * 2.2 }
      : { x: (p.x + q.x) / 2 + normal.x * offset * 2, y: (p.y + q.y) / 2 + normal.y * offset * 2 };
    const start = loop ? { x: p.x - 22, y: p.y + box.h / 2 + 2 } : boxEdge(p, middle);
    const end = loop ? { x: p.x + 22, y: p.y + box.h / 2 + GAP } : boxEdge(q, middle);
    const direction = Math.atan2(end.y - middle.y, end.x - middle.x);
    const corner = (angle) => `${end.x - 9 * Math.cos(direction + angle)},${end.y - 9 * Math.sin(direction + angle)}`;
    arrows.push(
      svgElement("path", { class: `edge ${kind}`, d: `M${start.x},${start.y} Q${middle.x},${middle.y} ${end.x},${end.y}`, "data-rules": rules }),
      svgElement("polygon", { class: `tip ${kind}`, points: `${end.x},${end.y} ${corner(0.42)} ${corner(-0.42)}`, "data-rules": rules }),
    );
    const onCurve = (axis) => (1 - labelAt) ** 2 * start[axis] + 2 * labelAt * (1 - labelAt) * middle[axis] + labelAt ** 2 * end[axis];
    const label = truncate(display(text), wide ? 36 : 12), labelWidth = 6.4 * Array.from(label).length + 8;
    const x = Math.max(labelWidth / 2, Math.min(W - labelWidth / 2, onCurve("x"))), y = onCurve("y"); // inside the drawing
    arrowLabels.push(
      svgElement("rect", { class: "label-box", x: x - labelWidth / 2, y: y - 8, width: labelWidth, height: 16 }),
      svgElement("text", { class: kind ? `label ${kind}-label` : "label", x, y: y + 4, "text-anchor": "middle", "data-rules": rules },
        svgElement("title", {}, text), label),
    );
  }

  const pair = (h, t) => JSON.stringify([h, t].sort());
  const total = new Map(), drawn = new Map();
  for (const { fact: [h, , t] } of facts) total.set(pair(h, t), (total.get(pair(h, t)) ?? 0) + 1);
  // how far an arrow from head to tail bends to avoid the boxes between them
  const clearance = between.size ? (wide ? span / 2 + 40 : span / 2 + box.w / 2 + 26) : 22;
  for (const { fact: [h, r, t], rules } of facts) {
    const key = pair(h, t), nth = drawn.get(key) ?? 0;
    drawn.set(key, nth + 1);
    const offset = key === pair(head, tail) ? clearance + nth * (wide ? bend : 22) : (nth - (total.get(key) - 1) / 2) * 30;
    // labels are placed where arrows are far apart: near the boxes between head and tail, or staggered
    const isEnd = (entity) => entity === head || entity === tail;
    const short = wide && display(r).length <= 20;
    const staggered = [...between].indexOf(isEnd(h) ? t : h) % 2 ? 0.38 : 0.62;
    const labelAt = key === pair(head, tail) ? (wide ? 0.5 : 0.3 + 0.2 * (nth % 3)) : isEnd(h) === isEnd(t) ? 0.5
      : wide ? (short ? (isEnd(h) ? 0.68 : 0.32) : 0.5) : staggered;
    arrow(h, t, r, offset, "", [...rules].join(" "), labelAt);
  }
  arrow(head, tail, relation, -clearance, "explained", "", wide ? 0.5 : 0.2);

  const boxes = [...positions.keys()].map((entity) => {
    const { x, y } = at(entity);
    return svgElement("a", { href: viewUrl("entity", { name: entity }), class: entity === head || entity === tail ? "end" : "" },
      svgElement("title", {}, entity),
      svgElement("rect", { class: "box", x: x - box.w / 2, y: y - box.h / 2, width: box.w, height: box.h, rx: 9 }),
      svgElement("text", { x, y: y + 4.5, "text-anchor": "middle" }, truncate(display(entity), box.letters)));
  });
  svg.append(...arrows, ...boxes, ...arrowLabels);
  return svg;
}

// Dim the arrows that a rule or path does not use; with null, or if it is not drawn, dim none.
export function highlight(svg, rule) {
  const nodes = [...svg.querySelectorAll("[data-rules]:not(.explained, .explained-label)")];
  const isUsed = (node) => node.dataset.rules.split(" ").includes(String(rule));
  const isDrawn = nodes.some(isUsed);
  for (const node of nodes) node.classList.toggle("dim", isDrawn && !isUsed(node));
}
