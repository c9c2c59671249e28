// The small graph of an explanation: the asked triple dashed, the premises behind it as arrows.

import { address, brief, labelOf, shape, shortened } from "./dom.js";

const RULES = 5, EACH = 2, GAP = 6;

// The facts of the strongest groundings, each with the numbers of the rules that use it.
function gather(why, room) {
  const [head, , tail] = why.triple;
  const facts = new Map(), between = new Set();
  why.rules.slice(0, RULES).forEach((rule, number) => {
    for (const grounding of rule.premises.slice(0, EACH)) {
      const fresh = grounding.flatMap(([h, , t]) => [h, t]).filter((e) => e !== head && e !== tail && !between.has(e));
      if (between.size + new Set(fresh).size > room) continue;
      fresh.forEach((e) => between.add(e));
      for (const fact of grounding) {
        const key = JSON.stringify(fact);
        if (!facts.has(key)) facts.set(key, { fact, rules: new Set() });
        facts.get(key).rules.add(number);
      }
    }
  });
  return { facts: [...facts.values()], between };
}

function distances(from, facts) {
  const found = new Map([[from, 0]]);
  for (const entity of found.keys()) {
    for (const { fact: [h, , t] } of facts) {
      const next = h === entity ? t : t === entity ? h : null;
      if (next !== null && !found.has(next)) found.set(next, found.get(entity) + 1);
    }
  }
  return found;
}

// Places along the way from head (0) to tail (1), and across it.
function places(head, tail, facts, between) {
  const near = distances(head, facts), far = distances(tail, facts);
  const columns = new Map();
  for (const entity of between) {
    const [a, b] = [near.get(entity) ?? 1, far.get(entity) ?? 1];
    const along = (a / (a + b)).toFixed(2);
    columns.set(along, [...(columns.get(along) ?? []), entity]);
  }
  const found = new Map([[head, { along: 0, across: 0 }]]);
  if (tail !== head) found.set(tail, { along: 1, across: 0 });
  for (const [along, entities] of columns) {
    entities.forEach((entity, i) => found.set(entity, { along: Number(along), across: i - (entities.length - 1) / 2 }));
  }
  return { found, widest: Math.max(1, ...[...columns.values()].map((c) => c.length)) };
}

export function drawing(why, labels, width) {
  const wide = width >= 620;
  const shown = (text) => labelOf(text, labels) ?? brief(text);
  const [head, relation, tail] = why.triple;
  const { facts, between } = gather(why, wide ? 7 : 2);
  const { found, widest } = places(head, tail, facts, between);
  const box = wide ? { w: 168, h: 34, letters: 21 } : { w: 92, h: 32, letters: 11 };
  const direct = facts.filter(({ fact: [h, , t] }) => new Set([h, t, head, tail]).size <= 2).length;
  const bend = 46, step = wide ? 62 : box.w + 8;
  const span = (widest - 1) * step;
  const above = span / 2 + (between.size ? 48 : 20), below = direct ? span / 2 + (between.size ? 10 : 0) + direct * bend : span / 2 + 10;
  const W = width, H = wide ? above + below + box.h : 330;
  const at = (entity) => {
    const { along, across } = found.get(entity);
    return wide
      ? { x: box.w / 2 + 6 + along * (W - box.w - 12), y: above + box.h / 2 + across * step }
      : { x: W / 2 + across * step, y: 24 + along * (H - 48) };
  };
  const svg = shape("svg", { class: "drawing", viewBox: `0 0 ${W} ${H}`, width: W, height: H, role: "group", "aria-label": `${facts.length} known facts from which rules conclude the asked one` });
  const arrows = [], names = [];

  // Where the way from a box's middle to a point leaves the box.
  function edge(from, to) {
    const dx = to.x - from.x, dy = to.y - from.y;
    const scale = Math.min((box.w / 2 + GAP) / Math.max(Math.abs(dx), 1e-6), (box.h / 2 + GAP) / Math.max(Math.abs(dy), 1e-6));
    return { x: from.x + dx * Math.min(scale, 1), y: from.y + dy * Math.min(scale, 1) };
  }

  function arrow(a, b, text, off, kind, rules = "", way = 0.5) {
    const [p, q] = [at(a), at(b)];
    const loop = a === b;
    const length = Math.hypot(q.x - p.x, q.y - p.y) || 1;
    // across the line from head to tail, whichever way this arrow points
    const sign = p.x < q.x || (p.x === q.x && p.y < q.y) ? 1 : -1;
    const normal = { x: (sign * -(q.y - p.y)) / length, y: (sign * (q.x - p.x)) / length };
    const middle = loop
      ? { x: p.x, y: p.y + (off || bend) * 2.2 }
      : { x: (p.x + q.x) / 2 + normal.x * off * 2, y: (p.y + q.y) / 2 + normal.y * off * 2 };
    const start = loop ? { x: p.x - 22, y: p.y + box.h / 2 + 2 } : edge(p, middle);
    const end = loop ? { x: p.x + 22, y: p.y + box.h / 2 + GAP } : edge(q, middle);
    const turn = Math.atan2(end.y - middle.y, end.x - middle.x);
    const corner = (angle) => `${end.x - 9 * Math.cos(turn + angle)},${end.y - 9 * Math.sin(turn + angle)}`;
    arrows.push(
      shape("path", { class: `edge ${kind}`, d: `M${start.x},${start.y} Q${middle.x},${middle.y} ${end.x},${end.y}`, "data-rules": rules }),
      shape("polygon", { class: `tip ${kind}`, points: `${end.x},${end.y} ${corner(0.42)} ${corner(-0.42)}`, "data-rules": rules }),
    );
    const on = (axis) => (1 - way) ** 2 * start[axis] + 2 * way * (1 - way) * middle[axis] + way ** 2 * end[axis];
    const label = shortened(shown(text), wide ? 36 : 12), plate = 6.4 * Array.from(label).length + 8;
    const x = Math.max(plate / 2, Math.min(W - plate / 2, on("x"))), y = on("y"); // within the picture
    names.push(
      shape("rect", { class: "plate", x: x - plate / 2, y: y - 8, width: plate, height: 16 }),
      shape("text", { class: kind ? `label ${kind}-label` : "label", x, y: y + 4, "text-anchor": "middle", "data-rules": rules },
        shape("title", {}, text), label),
    );
  }

  const pair = (h, t) => JSON.stringify([h, t].sort());
  const all = new Map(), drawn = new Map();
  for (const { fact: [h, , t] } of facts) all.set(pair(h, t), (all.get(pair(h, t)) ?? 0) + 1);
  // past the boxes between, where there are some
  const clear = between.size ? (wide ? span / 2 + 40 : span / 2 + box.w / 2 + 26) : 22;
  for (const { fact: [h, r, t], rules } of facts) {
    const key = pair(h, t), nth = drawn.get(key) ?? 0;
    drawn.set(key, nth + 1);
    const off = key === pair(head, tail) ? clear + nth * (wide ? bend : 22) : (nth - (all.get(key) - 1) / 2) * 30;
    // names stand where their arrows are apart from others: near the boxes between, or one after the other
    const isEnd = (entity) => entity === head || entity === tail;
    const short = wide && shown(r).length <= 20;
    const place = [...between].indexOf(isEnd(h) ? t : h) % 2 ? 0.38 : 0.62;
    const way = key === pair(head, tail) ? (wide ? 0.5 : 0.3 + 0.2 * (nth % 3)) : isEnd(h) === isEnd(t) ? 0.5
      : wide ? (short ? (isEnd(h) ? 0.68 : 0.32) : 0.5) : place;
    arrow(h, t, r, off, "", [...rules].join(" "), way);
  }
  arrow(head, tail, relation, -clear, "asked", "", wide ? 0.5 : 0.2);

  const boxes = [...found.keys()].map((entity) => {
    const { x, y } = at(entity);
    return shape("a", { href: address("entity", { name: entity }), class: entity === head || entity === tail ? "end" : "" },
      shape("title", {}, entity),
      shape("rect", { class: "box", x: x - box.w / 2, y: y - box.h / 2, width: box.w, height: box.h, rx: 9 }),
      shape("text", { x, y: y + 4.5, "text-anchor": "middle" }, shortened(shown(entity), box.letters)));
  });
  svg.append(...arrows, ...boxes, ...names);
  return svg;
}

// Only the arrows that one rule uses; all of them for null.
export function highlight(svg, rule) {
  for (const part of svg.querySelectorAll("[data-rules]:not(.asked, .asked-label)")) {
    part.classList.toggle("dim", rule !== null && !part.dataset.rules.split(" ").includes(String(rule)));
  }
}
