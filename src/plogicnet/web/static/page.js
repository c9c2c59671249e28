// The page: an address (the part after #) is a view; every view is made of answers of /api.

import { address, bar, count, element, get, labelOf, measure, name, percent, plural, shortened, shown } from "./dom.js";
import { drawing, highlight } from "./drawing.js";
import { typeahead } from "./typeahead.js";

const view = document.getElementById("view");
const say = (text) => (document.getElementById("status").textContent = text);

// ---- parts that several views use

const labelled = (text, labels) => labelOf(text, labels) ?? text;
const entityLink = (entity, labels) => element("a", { class: "entity", href: address("entity", { name: entity }) }, shown(entity, labels));
const factAddress = (h, r, t) => address("fact", { h, r, t });

function sentence([h, r, t], labels, self = null) {
  const end = (entity) => (entity === self ? element("span", { class: "self" }, shown(entity, labels)) : entityLink(entity, labels));
  return [end(h), element("span", { class: "relation" }, shown(r, labels)), end(t)];
}

function chips(fact) {
  if (fact.known) return element("span", { class: "chip known" }, "known");
  const held = fact.held_out ? element("span", { class: "chip known", title: `${fact.held_out} holds it; training did not see it` }, "held out") : null;
  return element("div", { class: "chips" }, held, fact.in_hidden
    ? element("span", { class: "chip rules", title: "rules conclude it from known facts" }, "rules")
    : element("span", { class: "chip", title: "no rule reaches it" }, "neural"));
}

function factRow(fact, labels, self) {
  const { head: h, relation: r, tail: t } = fact;
  const [from, relation, to] = sentence([h, r, t], labels, self);
  const words = `Why ${labelled(r, labels)}(${labelled(h, labels)}, ${labelled(t, labels)})?`;
  const why = element("a", { class: "why", href: factAddress(h, r, t), "aria-label": words.slice(0, 300), "data-move": true }, relation);
  return element("li", {}, element("div", { class: "fact" }, measure(fact.probability, fact.known), element("div", { class: "sentence" }, from, why, to), chips(fact)));
}

// A list that grows by a button, where the server has more.
function growing(rows, more) {
  const list = element("ul", { class: "facts" }, rows);
  if (!more) return [list];
  let notice = null;
  const button = element("button", { type: "button", class: "more", onclick: async () => {
    button.disabled = true;
    notice?.remove();
    const first = list.children.length;
    try {
      const { rows: next, done } = await more(first);
      list.append(...next);
      list.children[first]?.querySelector("[data-move], summary")?.focus();
      if (done) button.remove();
    } catch (error) {
      list.after(notice = problem(error));
    }
    button.disabled = false;
  } }, "Show more");
  return [list, button];
}

const rulesAnd = (all, constraints) => [all > constraints || !all ? plural(all - constraints, "rule") : null, constraints ? plural(constraints, "constraint") : null].filter(Boolean).join(" and ");

// Of some parts [kind, name, address of a name instead], which the graph does not hold, with the names nearest to it.
async function unknown(parts) {
  for (const [kind, text, instead] of parts.filter(([, text]) => text)) {
    let { names } = await get("search", { q: text, kind });
    if (names.some((entry) => entry.name === text)) continue;
    for (let most = Math.min(text.length - 1, 40); !names.length && most > 2; most = Math.floor(most * 0.75)) ({ names } = await get("search", { q: text.slice(0, most), kind }));
    const near = names.slice(0, 5).map((entry) => element("li", {}, element("a", { href: instead(entry.name) }, name(entry.label ?? entry.name))));
    return element("section", { class: "card problem", role: "alert" }, element("p", {}, `There is no ${kind} `, element("b", {}, name(shortened(text, 200))), near.length ? " here. Names like it:" : " here."), element("ul", {}, near));
  }
  return null;
}

// The elements of a view whose names may be unknown.
async function ofKnown(parts, made) {
  try {
    return await made();
  } catch (error) {
    const notice = error.status === 404 ? await unknown(parts) : null;
    if (!notice) throw error;
    return { title: "Unknown", content: [heading("Unknown"), notice] };
  }
}

const card = (title, hint, ...children) => element("section", { class: "card" }, element("h2", {}, title), hint ? element("p", { class: "hint" }, hint) : null, children);
const heading = (...children) => element("h1", { tabindex: "-1" }, children);

// ---- views: each takes the address's values and gives a title and elements

async function home() {
  const [info, common, strongest] = await Promise.all([get("info"), get("search", { q: "", top: 12 }), get("rules", { top: 6 })]);
  const rows = Object.entries(info.rankings).map(([key, title]) => element("tr", {}, element("td", {}, title),
    info.metrics.map((metric) => element("td", { class: "number" }, info.figures[key][metric.key].toFixed(metric.digits)))));
  const figures = rows.length ? card(`How well it ranks the ${plural(info[info.split], `${info.split} fact`)}`, "Which training did not see. MRR is the mean reciprocal rank of the right answer, Hits@10 how often it is among the first ten, MR its mean rank.",
    element("div", { class: "scroll" }, element("table", {}, element("thead", {}, element("tr", {}, ["ranked by", ...info.metrics.map((metric) => metric.title)].map((t) => element("th", { scope: "col" }, t)))), element("tbody", {}, rows)))) : null;
  const start = card("Start with an entity", "The best-known entities; press / to search for any other.",
    element("ul", { class: "plain" }, common.names.map((entry) => element("li", {}, element("a", { href: address("entity", { name: entry.name }), class: "clamp", "data-move": true }, name(entry.label ?? entry.name)), element("span", { class: "soft small number" }, plural(entry.facts, "fact"))))));
  const rules = strongest.rules.length ? card("Strongest rules", null,
    element("ul", { class: "plain" }, strongest.rules.map((rule) => element("li", {}, element("a", { class: "code", href: address("rules", { n: rule.number }) }, name(rule.rule)), element("span", { class: "soft small number" }, weight(rule))))),
    element("p", { class: "small" }, element("a", { href: "#/rules" }, `All ${rulesAnd(info.rules, info.constraints)}`))) : null;
  return { title: info.name, content: [
    heading("What is missing in ", name(info.name), ", and why?"),
    element("p", { class: "lead" }, [plural(info.entities, "entity", "entities"), plural(info.relations, "relation"), plural(info.train, "known fact"), rulesAnd(info.rules, info.constraints), info.model && `neural model ${info.model}`].filter(Boolean).map((t) => element("span", {}, t))),
    element("div", { class: "columns" }, start, element("div", {}, figures, rules)),
  ] };
}

const entity = (values) => ofKnown([["entity", values.name, (other) => address("entity", { name: other })], ["relation", values.relation, (other) => address("entity", { ...values, relation: other })]], () => aboutEntity(values));

async function aboutEntity({ name: self, relation, side }) {
  const only = { entity: self, relation, side };
  const [about, known] = await Promise.all([get("entity", { name: self }), get("known", { ...only, top: 30 })]);
  const title = about.label ?? self;
  const role = (item) => element("a", { href: address("entity", { name: self, ...item }), "aria-current": (item.relation === relation && (item.side ?? side) === side) ? "true" : false, "data-move": true },
    item.relation ? element("span", {}, element("span", { class: "way", "aria-hidden": "true" }, item.side === "tail" ? "→" : "←"), element("span", { class: "unseen" }, item.side === "tail" ? "from here " : "to here "), shown(item.relation, about.labels)) : "All relations",
    element("span", { class: "soft number" }, item.known === undefined ? "" : count(item.known)));
  const roles = about.roles.map(({ relation: r, side: s, known: k }) => {
    const link = role({ relation: r, side: s });
    link.lastChild.textContent = k ? count(k) : "";
    return element("li", {}, link);
  });
  const narrow = matchMedia("(max-width: 760px)").matches;
  const filter = element("details", { class: "filter", open: !narrow },
    element("summary", {}, `Relations (${about.roles.length})`),
    element("ul", {}, element("li", {}, role({})), roles));
  // many queries in one, so it may take a moment: what is known is shown meanwhile
  const looked = element("span");
  const predicted = element("div", { class: "soft", "aria-busy": "true" }, "Looking for missing facts…");
  const later = get("predicted", { ...only, top: relation ? 100 : 60 }).then((missing) => {
    const all = missing.predictions.map((f) => factRow(f, missing.labels, self));
    const first = Math.min(15, Math.max(5, missing.predictions.filter((f) => f.probability >= 0.01).length));
    const rest = all.slice(first);
    if (!relation) looked.append(`Looked for in ${missing.roles < about.roles.length ? `${missing.roles} of ${about.roles.length} relations` : `the ${plural(missing.roles, "relation")} that suit it best`}; choose one, or Ask, for others.`);
    predicted.replaceWith(...(all.length ? growing(all.slice(0, first), rest.length ? async () => ({ rows: rest, done: true }) : null) : [element("p", { class: "soft" }, "No missing fact to show.")]));
  }).catch((error) => predicted.replaceWith(problem(error)));
  const moreKnown = async (offset) => {
    const next = await get("known", { ...only, top: 100, offset });
    return { rows: next.predictions.map((f) => factRow(f, next.labels, self)), done: offset + next.predictions.length >= next.total };
  };
  const facts = known.predictions.length
    ? growing(known.predictions.map((f) => factRow(f, known.labels, self)), known.predictions.length < known.total ? moreKnown : null)
    : element("p", { class: "soft" }, "None is known.");
  if (!about.roles.length && !relation) {
    return { title, content: [element("div", { class: "tall" }, heading(name(title))), card("Nothing is known of it", null,
      element("p", {}, "It is in no training fact, so that there is no relation in which to look for missing ones. ", element("a", { href: address("ask", { h: self }) }, "Ask"), " names one."))] };
  }
  const chosen = relation ? element("span", {}, "only ", shown(relation, about.labels), " · ", element("a", { href: address("entity", { name: self }) }, "all relations")) : null;
  return { title, later, content: [
    element("div", { class: "tall" }, heading(name(title))),
    element("p", { class: "lead" }, about.label ? element("span", { class: "code" }, name(self)) : null, element("span", {}, plural(about.facts, "known fact")), chosen),
    element("div", { class: "beside" }, filter, element("div", {},
      card("Predicted", ["Not among the known facts, most probable first. A fact opens its explanation. ", looked], predicted),
      card(`Known (${count(known.total)})`, "Probabilities are what the model would say of them.", facts))),
  ] };
}

const fact = ({ h, r, t }) => ofKnown([["entity", h, (other) => factAddress(other, r, t)], ["relation", r, (other) => factAddress(h, other, t)], ["entity", t, (other) => factAddress(h, r, other)]], () => aboutFact({ h, r, t }));

const PARTS = {
  intercept: () => "for any triple",
  score: (part) => `for the neural model: log-odds ${part.value.toFixed(2)} × ${part.coefficient.toFixed(2)}`,
  p_w: (part) => `for the rules: p_w ${part.value.toFixed(3)} × ${part.coefficient.toFixed(2)}`,
  reached: (part, why) => (why.rules.length ? "for being reached by rules" : "no rule reaches it"),
};

async function aboutFact({ h, r, t }) {
  const why = await get("explain", { head: h, relation: r, tail: t });
  const { labels } = why;
  const place = why.held_out ? `Held out: ${why.held_out} holds it, training did not see it.` : "Not in the graph.";
  const state = why.known ? "A known fact." : `${place} ${why.forbidden ? "Ruled out: this relation holds for no entity with itself." : why.rules.length ? "Rules conclude it from known facts." : "No rule reaches it."}`;
  const meters = element("div", { class: "meters" }, [["neural model (q)", why.q], ["rules (p_w)", why.p_w]].filter(([, p]) => p !== null).map(([title, p]) =>
    element("div", {}, element("p", { class: "small soft" }, title), measure(p))));
  const svg = drawing(why, labels, Math.min(view.clientWidth - 40, 1080) - 46);
  const parts = why.forbidden ? [] : why.calibration.parts.filter((part) => why.rules.length || part.part !== "p_w");
  const most = Math.max(Math.abs(why.base), Math.abs(why.log_odds), ...[...why.rules, ...parts].map((part) => Math.abs(part.contribution)), 1e-9);
  const signed = (value) => {
    const filled = element("div", { class: value < 0 ? "fill minus" : "fill" });
    filled.style.width = `${(50 * Math.abs(value)) / most}%`;
    return element("div", { class: "signed", "aria-hidden": "true" }, filled);
  };
  const odds = (value) => (value < 0 ? "−" : "+") + Math.abs(value).toFixed(2);
  const line = (value, ...what) => element("div", { class: "line" }, element("span", { class: "number" }, odds(value)), signed(value), element("div", { class: "what" }, what));
  const all = why.rules.reduce((sum, rule) => sum + rule.groundings + rule.broken, 0);
  const rules = why.rules.map((rule, number) => {
    const broken = rule.broken ? `, less ${count(rule.broken)} that it would break as a premise` : "";
    const times = why.aggregate === "mean" ? `, ${count(rule.groundings)} of the ${plural(all, "grounding")}` : rule.groundings === 1 && !broken ? "" : ` × ${plural(rule.groundings, "grounding")}`;
    const premises = rule.premises.map((grounding) => element("li", {}, grounding.map((premise, i) => [i ? element("span", { class: "and" }, "and") : null, element("span", { class: "sentence" }, sentence(premise, labels))])));
    const hidden = rule.groundings - rule.premises.length;
    return element("li", { class: "rule", onpointerenter: () => highlight(svg, number), onpointerleave: () => highlight(svg, null) },
      line(rule.contribution, element("details", { open: number < 2 },
        element("summary", { "data-move": true }, element("span", { class: "code" }, name(rule.rule)), element("span", { class: "soft small" }, `  weight ${rule.weight.toFixed(2)}${times}${broken}`)),
        element("ul", { class: "premises" }, premises, hidden > 0 ? element("li", { class: "soft" }, `… and ${count(hidden)} more`) : null))));
  });
  const near = why.neighbours.toSorted((a, b) => b.similarity - a.similarity);
  const neighbours = near.length ? card("Similar entities with such a fact", "By the neural model; 1 is the most similar.",
    element("ul", { class: "facts" }, near.map((n) => element("li", {}, element("div", { class: "fact" }, element("div", { class: "measure" }, bar(n.similarity), element("span", { class: "number" }, n.similarity.toFixed(2))),
      element("div", { class: "sentence" }, sentence(n.fact, labels)), element("span", { class: "soft small" }, "like ", shown(n.similar_to, labels))))))) : null;
  const paths = why.paths.length ? card("Paths from head to tail", "Each with its share of the neural model's score.",
    element("ul", { class: "premises paths" }, why.paths.map((p) => element("li", {}, element("span", { class: "number" }, p.share.toFixed(2)), " ",
      p.path.map((step, i) => [i ? element("span", { class: "and" }, "and") : null, element("span", { class: "sentence" }, sentence(step, labels))]))))) : null;
  return { title: `${labelled(r, labels)}(${labelled(h, labels)}, ${labelled(t, labels)})`, content: [
    element("div", { class: "tall" }, heading(element("span", { class: "sentence" }, sentence([h, r, t], labels)))),
    element("section", { class: "card verdict" },
      element("div", {}, element("p", { class: "big number" }, percent(why.probability)), element("p", { class: "small soft" }, "calibrated probability")),
      element("div", {}, element("p", {}, state), meters)),
    why.rules.length ? card("The facts behind it", "Dashed: the asked fact. The strongest groundings alone.", svg) : null,
    card("What the rules add up to", "Log-odds: above zero speaks for the fact.", element("ol", { class: "odds" },
      element("li", {}, line(why.base, element("span", {}, "base rate of ", shown(r, labels)))), rules,
      why.rules.length ? null : element("li", { class: "soft" }, "No rule reaches it from the known facts."),
      element("li", { class: "total" }, line(why.log_odds, `together: ${percent(why.p_w)} by the rules (p_w)`)))),
    parts.length ? card("How the probability is composed", "Calibrated on validation facts, where what the graph does not hold counts as wrong: so it is cautious.", element("ol", { class: "odds" },
      parts.map((part) => element("li", {}, line(part.contribution, PARTS[part.part](part, why)))),
      element("li", { class: "total" }, line(why.calibration.log_odds, `together: ${percent(why.probability)}`)))) : null,
    neighbours,
    paths,
  ] };
}

const weight = (rule) => (rule.weight === null ? "constraint" : rule.weight.toFixed(2));

function ruleRow(rule, most, examples = null) {
  const inside = element("div", { class: "inside" });
  const row = element("details", { open: examples !== null },
    element("summary", { "data-move": true },
      rule.weight === null ? element("span", { class: "soft" }, "constraint") : element("div", { class: "measure" }, bar(rule.weight / most), element("span", { class: "number" }, weight(rule))),
      element("span", { class: "code" }, name(rule.rule)), element("span", { class: "chip" }, rule.pattern)), inside);
  const show = (about) => inside.replaceChildren(...[
    element("p", { class: "soft small" }, rule.weight === null ? ["no self-loop in ", `${count(rule.hits)} of ${count(rule.support)} `, shown(about.relation, about.labels), rule.support === 1 ? " fact" : " facts"]
      : `right in ${count(rule.hits)} of the ${plural(rule.support, "fact")} it concludes (precision ${percent(rule.precision)})`,
      rule.standard_error == null ? "" : `; weight ± ${rule.standard_error.toFixed(2)}`, " · ", element("a", { href: address("rules", { n: rule.number }) }, "link")),
    rule.weight === null ? null : element("ul", { class: "premises" }, about.examples.map((example) => element("li", {},
      example.premises.map((premise, i) => [i ? element("span", { class: "and" }, "and") : null, element("span", { class: "sentence" }, sentence(premise, about.labels))]),
      element("span", { class: "and" }, "so"), element("a", { href: factAddress(...example.hypothesis) }, name(`${labelled(example.hypothesis[1], about.labels)}(${labelled(example.hypothesis[0], about.labels)}, ${labelled(example.hypothesis[2], about.labels)})`)), " ",
      element("span", { class: example.known || example.held_out ? "chip known" : "chip rules" }, example.known ? "known" : example.held_out ? "held out" : "missing"))),
      about.examples.length ? null : element("li", { class: "soft" }, "There are no examples to show.")),
  ].filter(Boolean));
  if (examples) show(examples);
  else row.addEventListener("toggle", async () => {
    if (!row.open || inside.dataset.shown) return;
    try {
      show(await get("rule", { number: rule.number }));
      inside.dataset.shown = "1";
    } catch (error) {
      inside.replaceChildren(problem(error)); // asked again when it is opened again
    }
  });
  return element("li", {}, row);
}

async function rules({ q = "", n }) {
  const input = element("input", { type: "search", id: "rule-words", value: q, placeholder: "words of a rule, as a relation's name", autocomplete: "off", maxlength: "8192" });
  const total = element("span"), results = element("div", { class: "results" });
  let words = q, timer = 0, asked = null;
  // the field stays while it is typed in: the list and the count alone are made anew
  async function find() {
    asked?.abort();
    asked = new AbortController();
    const q = words, found = await get("rules", { q, top: 50 }, asked.signal);
    const most = Math.max(1e-9, ...found.rules.map((rule) => rule.weight ?? 0));
    const rows = (some) => some.map((rule) => ruleRow(rule, most));
    const more = async (offset) => {
      const next = await get("rules", { q, top: 100, offset });
      return { rows: rows(next.rules), done: offset + next.rules.length >= next.total };
    };
    const [list, ...button] = growing(rows(found.rules), found.rules.length < found.total ? more : null);
    list.className = "rules";
    total.textContent = rulesAnd(found.total, found.constraints) + (q ? " with these words" : "");
    results.replaceChildren(found.total ? list : element("p", { class: "soft" }, "No rule has these words."), ...button);
  }
  const [one] = await Promise.all([n === undefined ? null : get("rule", { number: n }), find()]);
  const alone = one ? card("This rule", null, element("ul", { class: "rules" }, ruleRow(one, Math.max(1e-9, one.weight ?? 0), one))) : null;
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      if (!input.isConnected || input.value.trim() === words) return;
      words = input.value.trim();
      history.replaceState(history.state, "", address("rules", { q: words }));
      alone?.remove();
      try {
        await find();
      } catch (error) {
        if (error.name === "AbortError") return; // asked anew meanwhile
        results.replaceChildren(problem(error));
      }
      if (input.isConnected) view.dataset.ready = location.hash;
    }, 250);
  });
  return { title: "Rules", content: [
    heading("Rules"),
    element("p", { class: "lead" }, total, element("span", {}, "strongest first; open one for examples")),
    alone,
    element("section", { class: "card" }, element("div", { class: "combo" }, element("label", { for: "rule-words" }, "Filter"), input), results),
  ] };
}

async function ask({ h = null, r = null, t = null, top = "10", known = "" }) {
  const fields = [["Head", "entity", h], ["Relation", "relation", r], ["Tail", "entity", t]].map(([label, kind, start]) => typeahead({ label, kind, start, placeholder: "? any" }));
  const include = element("input", { type: "checkbox", id: "include", checked: known === "1" });
  const many = element("select", { id: "top" }, ["10", "50", "200"].map((n) => element("option", { value: n, selected: n === top }, n)));
  const form = element("form", { class: "card", onsubmit: (event) => {
    event.preventDefault();
    const [head, relation, tail] = fields.map((field) => field.value());
    go(address("ask", { h: head, r: relation, t: tail, top: many.value === "10" ? "" : many.value, known: include.checked ? "1" : "" }));
  } },
    element("div", { class: "question" }, fields.map((field) => field.root), element("button", { class: "primary", type: "submit" }, "Ask")),
    element("div", { class: "choices small" }, element("label", {}, include, " show known facts too"), element("label", {}, "answers: ", many)));
  const named = [h, r, t].filter((part) => part !== null).length;
  let answers = named ? element("p", { class: "soft card" }, "Name two of the three, and leave one open.") : null;
  if (named >= 2) {
    try {
      const found = await get("predict", { head: h, relation: r, tail: t, top, include_known: known === "1" });
      say(plural(found.predictions.length, "answer"));
      answers = card("Answers", "Most probable first. A fact opens its explanation.", found.predictions.length ? growing(found.predictions.map((f) => factRow(f, found.labels, null))) : element("p", { class: "soft" }, "There are none."));
    } catch (error) {
      const instead = (part) => (other) => address("ask", { h, r, t, top, known, [part]: other });
      const notice = error.status === 404 ? await unknown([["entity", h, instead("h")], ["relation", r, instead("r")], ["entity", t, instead("t")]]) : null;
      answers = notice ?? problem(error);
    }
  }
  return { title: "Ask", content: [heading("Ask"), element("p", { class: "lead" }, element("span", {}, "Leave open what you want to know: who, to whom, or how they are related.")), form, answers] };
}

const problem = (error) => element("section", { class: "card problem", role: "alert" }, element("p", {}, name(error.message || String(error))));

// ---- which view an address means, and going there

const VIEWS = new Map(Object.entries({ "": home, entity, fact, rules, ask }));
let turn = 0, depth = 0; // depth: how many of the pages before this one are of this site

async function show() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const mine = ++turn, loading = document.getElementById("loading");
  const back = history.state?.y;
  loading.classList.add("on");
  let made;
  try {
    if (!VIEWS.has(path)) throw new Error("There is no such page.");
    made = await VIEWS.get(path)(Object.fromEntries(new URLSearchParams(query)));
  } catch (error) {
    made = { title: "Problem", content: [heading("This did not work"), problem(error), element("p", {}, element("a", { href: "#/" }, "To the start page"))] };
  }
  if (mine !== turn) return; // the reader has gone on meanwhile
  loading.classList.remove("on");
  document.title = `${made.title.slice(0, 200)} · plogicnet`;
  view.replaceChildren(...made.content.filter(Boolean));
  Promise.resolve(made.later).then(() => {
    if (mine !== turn) return;
    view.dataset.ready = location.hash;
    if (back) window.scrollTo(0, back);
  });
  for (const link of document.querySelectorAll("[data-view]")) {
    if (link.dataset.view === path) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  view.querySelector("h1")?.focus({ preventScroll: true });
  window.scrollTo(0, back ?? 0);
}

function go(hash) {
  if (hash === location.hash) show();
  else location.hash = hash;
}

// ---- the bar at the top, the keyboard, light and dark

const search = typeahead({
  label: "Search for an entity", kind: "entity", placeholder: "Search for an entity", extra: [element("kbd", { class: "slash", "aria-hidden": "true" }, "/")],
  chosen: (entry) => { search.clear(); search.input.blur(); go(address("entity", { name: entry })); },
});
document.getElementById("search").append(search.root);

const help = document.getElementById("help");
document.getElementById("keys").addEventListener("click", () => help.showModal());
document.getElementById("help-close").addEventListener("click", () => help.close());
document.getElementById("skip").addEventListener("click", (event) => { event.preventDefault(); view.focus(); });

const root = document.documentElement, theme = document.getElementById("theme");
const isDark = () => (root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
function stored(value) {
  try { return value === undefined ? localStorage.getItem("theme") : localStorage.setItem("theme", value); } catch { return null; }
}
const paint = () => (theme.textContent = isDark() ? "☀" : "☾");
function switchTheme() {
  root.dataset.theme = isDark() ? "light" : "dark";
  stored(root.dataset.theme);
  paint();
}
if (["light", "dark"].includes(stored())) root.dataset.theme = stored();
theme.addEventListener("click", switchTheme);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
paint();

function move(step) {
  const all = [...view.querySelectorAll("[data-move]")].filter((item) => item.checkVisibility());
  const at = all.indexOf(document.activeElement);
  all[at < 0 ? (step > 0 ? 0 : all.length - 1) : Math.max(0, Math.min(all.length - 1, at + step))]?.focus();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  const typing = event.target.matches("input, select, textarea");
  if (event.key === "Escape") {
    if (typing) return event.target.blur();
    if (location.hash.startsWith("#/fact")) {
      const { h } = Object.fromEntries(new URLSearchParams(location.hash.split("?")[1]));
      return depth ? history.back() : go(address("entity", { name: h }));
    }
  }
  if (typing) return;
  const act = { "/": () => search.input.focus(), "?": () => help.showModal(), g: () => go("#/"), a: () => go("#/ask"), r: () => go("#/rules"), t: switchTheme, ArrowDown: () => move(1), ArrowUp: () => move(-1) }[event.key];
  if (!act || (event.key.startsWith("Arrow") && !view.querySelector("[data-move]"))) return;
  event.preventDefault();
  act();
});

history.scrollRestoration = "manual";
let still = 0;
window.addEventListener("scroll", () => {
  clearTimeout(still);
  still = setTimeout(() => history.replaceState({ depth, y: window.scrollY }, ""), 200);
}, { passive: true });
// A page that is gone back or forward to knows its depth; a new one is one deeper than the last.
function arrived(fresh) {
  clearTimeout(still);
  if (history.state?.depth === undefined) history.replaceState({ depth: fresh }, "");
  depth = history.state.depth;
  show();
}
window.addEventListener("hashchange", () => arrived(depth + 1));
if (new URLSearchParams(location.search).has("token")) history.replaceState(history.state, "", `/${location.hash}`); // it is a cookie now
arrived(0);
