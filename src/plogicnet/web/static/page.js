// The page. The part of the URL after # selects a view. Views show the data of /api.

import { bar, bdi, displayName, element, formatCount, formatProbability, getJson, labelOf, pluralize, probabilityBar, truncate, viewUrl } from "./dom.js";
import { drawing, highlight, pathName } from "./drawing.js";
import { typeahead } from "./typeahead.js";

const view = document.getElementById("view");
const RUN_CHANGED = "the run was changed meanwhile. Reload the page";
const announce = (text) => (document.getElementById("status").textContent = text);

// ---- elements that several views use

const labelOrName = (text, labels) => labelOf(text, labels) ?? text;
const entityLink = (entity, labels) => element("a", { class: "entity", href: viewUrl("entity", { name: entity }) }, displayName(entity, labels));
const factUrl = (h, r, t) => viewUrl("fact", { h, r, t });

function tripleElements([h, r, t], labels, self = null) {
  const end = (entity) => (entity === self ? element("span", { class: "self" }, displayName(entity, labels)) : entityLink(entity, labels));
  return [end(h), element("span", { class: "relation" }, displayName(r, labels)), end(t)];
}

function statusChips(fact) {
  if (fact.known) return element("span", { class: "chip known" }, "known");
  const heldOut = fact.held_out ? element("span", { class: "chip known", title: `in the ${fact.held_out} split, which was not used for training` }, "held out") : null;
  return element("div", { class: "chips" }, heldOut, fact.in_hidden
    ? element("span", { class: "chip rules", title: "rules conclude it from known facts" }, "rules")
    : element("span", { class: "chip", title: "no rule concludes it" }, "neural model"));
}

function factRow(fact, labels, self) {
  const { head: h, relation: r, tail: t } = fact;
  const [from, relation, to] = tripleElements([h, r, t], labels, self);
  const label = `Explain ${labelOrName(r, labels)}(${labelOrName(h, labels)}, ${labelOrName(t, labels)})`;
  const why = element("a", { class: "why", href: factUrl(h, r, t), "aria-label": label.slice(0, 300), "data-move": true }, relation);
  return element("li", {}, element("div", { class: "fact" }, probabilityBar(fact.probability, fact.known), element("div", { class: "sentence" }, from, why, to), statusChips(fact)));
}

// A list with a button that appends more rows, if there are more.
function expandableList(rows, more) {
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
      list.after(notice = errorNotice(error));
    }
    button.disabled = false;
  } }, "Show more");
  return [list, button];
}

const formatRuleCount = (all, constraints) => [all > constraints || !all ? pluralize(all - constraints, "rule") : null, constraints ? pluralize(constraints, "constraint") : null].filter(Boolean).join(" and ");

// A notice about the first unknown name with similar names, or null. Each part is [kind, name, URL for another name].
async function unknownNameNotice(parts) {
  for (const [kind, text, urlFor] of parts.filter(([, text]) => text)) {
    let { names } = await getJson("search", { q: text, kind });
    if (names.some((entry) => entry.name === text)) continue;
    for (let length = Math.min(text.length - 1, 40); !names.length && length > 2; length = Math.floor(length * 0.75)) ({ names } = await getJson("search", { q: text.slice(0, length), kind }));
    const similar = names.slice(0, 5).map((entry) => element("li", {}, element("a", { href: urlFor(entry.name) }, bdi(entry.label ?? entry.name))));
    return element("section", { class: "card problem", role: "alert" }, element("p", {}, `No ${kind} is named `, element("b", {}, bdi(truncate(text, 200))), similar.length ? ". Similar names:" : "."), element("ul", {}, similar));
  }
  return null;
}

// A view, or a notice if one of its names is unknown.
async function viewOrNotice(parts, makeView) {
  try {
    return await makeView();
  } catch (error) {
    const notice = error.status === 404 ? await unknownNameNotice(parts) : null;
    if (!notice) throw error;
    return { title: "Name not found", content: [heading("Name not found"), notice] };
  }
}

const card = (title, hint, ...children) => element("section", { class: "card" }, element("h2", {}, title), hint ? element("p", { class: "hint" }, hint) : null, children);
const heading = (...children) => element("h1", { tabindex: "-1" }, children);

// ---- views: each takes the values in the URL and returns a title and elements

async function homeView() {
  const [info, common, strongest] = await Promise.all([getJson("info"), getJson("search", { q: "", top: 12 }), getJson("rules", { top: 6, order: "importance" })]);
  const rows = Object.entries(info.rankings).map(([key, title]) => element("tr", {}, element("td", {}, title),
    info.metrics.map((metric) => element("td", { class: "number" }, info.figures[key][metric.key].toFixed(metric.digits)))));
  const metrics = rows.length ? card(`Ranking quality on ${pluralize(info[info.split], `${info.split} fact`)}`, `${info.split === "test" ? "These facts were not used for training." : "These facts were used to choose λ, so the metrics are optimistic."} MRR is the mean reciprocal rank of the correct answer, Hits@10 the share of queries with the correct answer among the first ten, MR the mean rank.`,
    element("div", { class: "scroll" }, element("table", {}, element("thead", {}, element("tr", {}, ["ranking", ...info.metrics.map((metric) => metric.title)].map((t) => element("th", { scope: "col" }, t)))), element("tbody", {}, rows)))) : null;
  const entities = card("Entities with the most known facts", "Press / to search for another entity.",
    element("ul", { class: "plain" }, common.names.map((entry) => element("li", {}, element("a", { href: viewUrl("entity", { name: entry.name }), class: "clamp", "data-move": true }, bdi(entry.label ?? entry.name)), element("span", { class: "soft small number" }, pluralize(entry.facts, "fact"))))));
  const rules = strongest.rules.length ? card("Important rules", null,
    element("ul", { class: "plain" }, strongest.rules.map((rule) => element("li", {}, element("a", { class: "code", href: viewUrl("rules", { n: rule.number }) }, bdi(rule.rule)), element("span", { class: "soft small number" }, formatWeight(rule))))),
    element("p", { class: "small" }, element("a", { href: "#/rules" }, `All ${formatRuleCount(info.rules, info.constraints)}`))) : null;
  return { title: info.name, content: [
    heading("Missing facts in ", bdi(info.name)),
    element("p", { class: "lead" }, [pluralize(info.entities, "entity", "entities"), pluralize(info.relations, "relation"), pluralize(info.train, "known fact"), formatRuleCount(info.rules, info.constraints), info.model && `neural model ${info.model}`].filter(Boolean).map((t) => element("span", {}, t))),
    element("div", { class: "columns" }, entities, element("div", {}, metrics, rules)),
  ] };
}

const entityView = (values) => viewOrNotice([["entity", values.name, (other) => viewUrl("entity", { name: other })], ["relation", values.relation, (other) => viewUrl("entity", { ...values, relation: other })]], () => entityContent(values));

async function entityContent({ name: self, relation, side }) {
  const filters = { entity: self, relation, side };
  const [details, known] = await Promise.all([getJson("entity", { name: self }), getJson("known", { ...filters, top: 30 })]);
  const title = details.label ?? self;
  const roleLink = (item) => element("a", { href: viewUrl("entity", { name: self, ...item }), "aria-current": (item.relation === relation && (item.side ?? side) === side) ? "true" : false, "data-move": true },
    item.relation ? element("span", {}, element("span", { class: "direction", "aria-hidden": "true" }, item.side === "tail" ? "→" : "←"), element("span", { class: "visually-hidden" }, item.side === "tail" ? "as head: " : "as tail: "), displayName(item.relation, details.labels)) : "All relations",
    element("span", { class: "soft number" }, item.known === undefined ? "" : formatCount(item.known)));
  const roles = details.roles.map(({ relation: r, side: s, known: k }) => {
    const link = roleLink({ relation: r, side: s });
    link.lastChild.textContent = k ? formatCount(k) : "";
    return element("li", {}, link);
  });
  const narrow = matchMedia("(max-width: 760px)").matches;
  const filter = element("details", { class: "filter", open: !narrow },
    element("summary", {}, `Relations (${details.roles.length})`),
    element("ul", {}, element("li", {}, roleLink({})), roles));
  // this runs many queries, so the known facts are shown first
  const searchNote = element("span");
  const predicted = element("div", { class: "soft", "aria-busy": "true" }, "Searching for missing facts…");
  const pending = getJson("predicted", { ...filters, top: relation ? 100 : 60 }).then((missing) => {
    const all = missing.predictions.map((f) => factRow(f, missing.labels, self));
    const first = Math.min(15, Math.max(5, missing.predictions.filter((f) => f.probability >= 0.01).length));
    const rest = all.slice(first);
    if (!relation) searchNote.append(`${missing.roles < details.roles.length ? `Only ${missing.roles} of ${details.roles.length} relations were searched` : pluralize(missing.roles, "plausible relation was searched", "plausible relations were searched")}. To search another, choose it in the list or use Ask.`);
    predicted.replaceWith(...(all.length ? expandableList(all.slice(0, first), rest.length ? async () => ({ rows: rest, done: true }) : null) : [element("p", { class: "soft" }, "No missing facts found.")]));
  }).catch((error) => predicted.replaceWith(errorNotice(error)));
  const moreKnown = async (offset) => {
    const next = await getJson("known", { ...filters, top: 100, offset });
    return { rows: next.predictions.map((f) => factRow(f, next.labels, self)), done: offset + next.predictions.length >= next.total };
  };
  const facts = known.predictions.length
    ? expandableList(known.predictions.map((f) => factRow(f, known.labels, self)), known.predictions.length < known.total ? moreKnown : null)
    : element("p", { class: "soft" }, "No known facts.");
  if (!details.roles.length && !relation) {
    return { title, content: [element("div", { class: "tall" }, heading(bdi(title))), card("No known facts", null,
      element("p", {}, "This entity is in no training fact, so no relation is suggested. Use ", element("a", { href: viewUrl("ask", { h: self }) }, "Ask"), " to choose a relation."))] };
  }
  const chosen = relation ? element("span", {}, "only ", displayName(relation, details.labels), " · ", element("a", { href: viewUrl("entity", { name: self }) }, "all relations")) : null;
  return { title, pending, content: [
    element("div", { class: "tall" }, heading(bdi(title))),
    element("p", { class: "lead" }, details.label ? element("span", { class: "code" }, bdi(self)) : null, element("span", {}, pluralize(details.facts, "known fact")), chosen),
    element("div", { class: "with-sidebar" }, filter, element("div", {},
      card("Predicted facts", ["Facts that are not known, most probable first. Click a fact for its explanation. ", searchNote], predicted),
      card(`Known facts (${formatCount(known.total)})`, "With the probability that the model gives to each fact.", facts))),
  ] };
}

const factView = ({ h, r, t }) => viewOrNotice([["entity", h, (other) => factUrl(other, r, t)], ["relation", r, (other) => factUrl(h, other, t)], ["entity", t, (other) => factUrl(h, r, other)]], () => factContent({ h, r, t }));

// The texts of the terms of the calibrated log-odds.
const TERM_TEXTS = {
  intercept: () => "constant",
  score: (term) => `neural model: log-odds ${term.value.toFixed(2)} × coefficient ${term.coefficient.toFixed(2)}`,
  p_w: (term) => `rules: p_w ${formatProbability(term.value)} × coefficient ${term.coefficient.toFixed(2)}`,
  reached: (term, why) => (why.rules.length ? "at least one rule concludes the fact" : "no rule concludes the fact"),
};

// Number of rules that a fact's view shows at first.
const MAX_RULES = 12;

async function factContent({ h, r, t }) {
  const why = await getJson("explain", { head: h, relation: r, tail: t, rules: MAX_RULES });
  const { labels } = why;
  const source = why.held_out ? `Held out: in the ${why.held_out} split, which was not used for training.` : "Not in the graph.";
  const status = why.known ? "A known fact." : `${source} ${why.forbidden ? "A constraint excludes it: this relation never holds between an entity and itself." : why.rules.length ? "Rules conclude it from known facts." : "No rule concludes it."}`;
  const meters = element("div", { class: "meters" }, [["neural model alone (q)", why.q], ["rules alone (p_w)", why.p_w]].filter(([, p]) => p !== null).map(([title, p]) =>
    element("div", {}, element("p", { class: "small soft" }, title), probabilityBar(p))));
  const svg = drawing(why, labels, Math.min(view.clientWidth - 40, 1080) - 46);
  const terms = why.forbidden ? [] : why.calibration.parts.filter((term) => why.rules.length || term.part !== "p_w");
  const largest = Math.max(Math.abs(why.base), Math.abs(why.log_odds), Math.abs(why.calibration.log_odds), ...[...why.rules, ...terms].map((term) => Math.abs(term.contribution)), 1e-9);
  const signedBar = (value) => {
    const filled = element("div", { class: value < 0 ? "fill minus" : "fill" });
    filled.style.width = `${(50 * Math.abs(value)) / largest}%`;
    return element("div", { class: "signed", "aria-hidden": "true" }, filled);
  };
  const formatLogOdds = (value) => (value < 0 ? "−" : "+") + Math.abs(value).toFixed(2);
  const line = (value, ...text) => element("div", { class: "line" }, element("span", { class: "number" }, formatLogOdds(value)), signedBar(value), element("div", { class: "text" }, text));
  const allGroundings = why.rules.reduce((sum, rule) => sum + (rule.negative ? 0 : rule.groundings + rule.broken), why.other_rules.groundings);
  const ruleItem = (names) => (rule, index) => {
    const violated = rule.broken ? `, minus ${pluralize(rule.broken, "grounding")} that would be violated if the fact were true` : "";
    const factor = rule.negative ? `, ${pluralize(rule.groundings, "fact")} against this fact` : !rule.groundings && !rule.broken ? ` × ${rule.value.toFixed(2)}` : why.aggregate === "mean" ? `, ${formatCount(rule.groundings)} of the ${pluralize(allGroundings, "grounding")}` : why.aggregate === "saturating" && rule.value !== 1 ? ` × ${rule.value.toFixed(2)} for ${pluralize(rule.groundings, "grounding")}` : rule.groundings === 1 && !violated ? "" : ` × ${pluralize(rule.groundings, "grounding")}`;
    const premises = rule.premises.map((grounding) => element("li", {}, grounding.map((premise, i) => [i ? element("span", { class: "connective" }, "and") : null, element("span", { class: "sentence" }, tripleElements(premise, names))])));
    const notShown = rule.groundings - rule.premises.length;
    return element("li", { class: "rule", onpointerenter: () => highlight(svg, index), onpointerleave: () => highlight(svg, null) },
      line(rule.contribution, element("details", { open: index < 2 },
        element("summary", { "data-move": true }, element("span", { class: "code" }, bdi(rule.rule)), element("span", { class: "soft small" }, `  weight ${rule.weight.toFixed(2)}${factor}${violated}`)),
        element("ul", { class: "premises" }, premises, notShown > 0 ? element("li", { class: "soft" }, `… and ${formatCount(notShown)} more`) : null))));
  };
  const rules = why.rules.map(ruleItem(labels));
  const others = why.other_rules.count ? element("li", {}, line(why.other_rules.contribution, pluralize(why.other_rules.count, "other rule"), " together ",
    element("button", { type: "button", class: "quiet", onclick: async (event) => {
      event.target.disabled = true;
      try {
        const all = await getJson("explain", { head: h, relation: r, tail: t });
        const rest = all.rules.slice(why.rules.length).map((rule, index) => ruleItem(all.labels)(rule, why.rules.length + index));
        others.replaceWith(...rest);
        rest[0]?.querySelector("summary").focus();
      } catch (error) {
        others.append(errorNotice(error));
        event.target.disabled = false;
      }
    } }, "Show all"))) : null;
  const sorted = why.neighbours.toSorted((a, b) => b.similarity - a.similarity);
  const neighbours = sorted.length ? card("Known facts with similar entities", "With the similarity in the neural model; 1 is the highest.",
    element("ul", { class: "facts" }, sorted.map((n) => element("li", {}, element("div", { class: "fact" }, element("div", { class: "measure" }, bar(n.similarity), element("span", { class: "number" }, n.similarity.toFixed(2))),
      element("div", { class: "sentence" }, tripleElements(n.fact, labels)), element("span", { class: "soft small" }, "similar to ", displayName(n.similar_to, labels))))))) : null;
  const paths = why.paths.length ? card("Paths from head to tail", "If the facts of the paths are removed, one path after the other, each path lowers the log-odds of the neural model by this much.",
    element("ul", { class: "premises paths" }, why.paths.map((p, i) => element("li", { onpointerenter: () => highlight(svg, pathName(i)), onpointerleave: () => highlight(svg, null) }, element("span", { class: "number" }, formatLogOdds(p.share)), " ",
      p.path.map((step, i) => [i ? element("span", { class: "connective" }, "and") : null, element("span", { class: "sentence" }, tripleElements(step, labels))]))))) : null;
  return { title: `${labelOrName(r, labels)}(${labelOrName(h, labels)}, ${labelOrName(t, labels)})`, content: [
    element("div", { class: "tall" }, heading(element("span", { class: "sentence" }, tripleElements([h, r, t], labels)))),
    element("section", { class: "card overview" },
      element("div", {}, element("p", { class: "big number" }, formatProbability(why.probability)), element("p", { class: "small soft" }, "calibrated probability")),
      element("div", {}, element("p", {}, status), meters)),
    why.rules.length || why.paths.length ? card("Supporting facts", "The dashed arrow is this fact. Only the strongest groundings and paths are drawn.", svg) : null,
    card("Contributions of the rules", "In log-odds. Positive values support the fact, negative values count against it.", element("ol", { class: "odds" },
      element("li", {}, line(why.base, element("span", {}, "base rate of ", displayName(r, labels)))), rules, others,
      why.rules.length ? null : element("li", { class: "soft" }, "No rule concludes it from known facts."),
      element("li", { class: "total" }, line(why.log_odds, `total: probability ${formatProbability(why.p_w)} by rules alone (p_w)`)))),
    terms.length ? card("How the probability is computed", "Calibrated on the validation facts. Facts that are missing from the graph count as wrong there, so the probabilities tend to be too low.", element("ol", { class: "odds" },
      terms.map((term) => element("li", {}, line(term.contribution, TERM_TEXTS[term.part](term, why)))),
      element("li", { class: "total" }, line(why.calibration.log_odds, `total: probability ${formatProbability(why.probability)}`)))) : null,
    neighbours,
    paths,
  ] };
}

const formatWeight = (rule) => (rule.weight === null ? "constraint" : rule.weight.toFixed(2));

function ruleRow(rule, maxWeight, loaded = null) {
  const inside = element("div", { class: "inside" });
  const row = element("details", { open: loaded !== null },
    element("summary", { "data-move": true },
      rule.weight === null ? element("span", { class: "soft" }, "constraint") : element("div", { class: "measure" }, bar(rule.weight / maxWeight), element("span", { class: "number" }, formatWeight(rule))),
      element("span", { class: "code" }, bdi(rule.rule)), element("span", { class: "chip" }, rule.pattern)), inside);
  const showDetails = (details) => inside.replaceChildren(...[
    element("p", { class: "soft small" }, rule.weight === null ? [`${formatCount(rule.hits)} of ${formatCount(rule.support)} `, displayName(details.relation, details.labels), rule.support === 1 ? " fact is not a self-loop" : " facts are not self-loops"]
      : `correct for ${formatCount(rule.hits)} of the ${pluralize(rule.support, "fact")} that it concludes (precision ${rule.precision.toFixed(2)})`,
      rule.standard_error == null ? "" : `; standard error of the weight ${rule.standard_error.toFixed(2)}`, " · ", element("a", { href: viewUrl("rules", { n: rule.number }) }, "link to this rule")),
    rule.weight === null ? null : element("ul", { class: "premises" }, details.examples.map((example) => element("li", {},
      example.premises.map((premise, i) => [i ? element("span", { class: "connective" }, "and") : null, element("span", { class: "sentence" }, tripleElements(premise, details.labels))]),
      element("span", { class: "connective" }, "so"), element("a", { href: factUrl(...example.hypothesis) }, bdi(`${labelOrName(example.hypothesis[1], details.labels)}(${labelOrName(example.hypothesis[0], details.labels)}, ${labelOrName(example.hypothesis[2], details.labels)})`)), " ",
      element("span", { class: example.known || example.held_out ? "chip known" : "chip rules" }, example.known ? "known" : example.held_out ? "held out" : "not in the graph"))),
      details.examples.length ? null : element("li", { class: "soft" }, "No examples.")),
  ].filter(Boolean));
  if (loaded) showDetails(loaded);
  else row.addEventListener("toggle", async () => {
    if (!row.open || inside.dataset.shown) return;
    try {
      const details = await getJson("rule", { number: rule.number });
      if (details.rule !== rule.rule) throw new Error(RUN_CHANGED);
      showDetails(details);
      inside.dataset.shown = "1";
    } catch (error) {
      inside.replaceChildren(errorNotice(error)); // opening the row again retries
    }
  });
  return element("li", {}, row);
}

async function rulesView({ q = "", relation = "", pattern = "", n }) {
  const input = element("input", { type: "search", id: "rule-words", value: q, placeholder: "words in a rule, for example the name of a relation", autocomplete: "off", maxlength: "8192" });
  const total = element("span"), results = element("div", { class: "results" });
  const filters = { relation, pattern };
  const relationField = typeahead({ label: "Relation", kind: "relation", start: relation || null, placeholder: "any relation", onChoose: (name) => change({ relation: name }) });
  relationField.input.addEventListener("input", () => filters.relation && relationField.value() === null && change({ relation: "" }));
  const patternSelect = element("select", { id: "rule-pattern", onchange: () => change({ pattern: patternSelect.value }) });
  let words = q, timer = 0, request = null;
  // only the list and the count are replaced, so that the field keeps its text and focus
  async function update() {
    request?.abort();
    request = new AbortController();
    const query = { q: words, relation: filters.relation || null, pattern: filters.pattern || null, order: "importance" };
    const found = await getJson("rules", { ...query, top: 50 }, request.signal);
    const options = Object.entries({ ...found.patterns, ...(filters.pattern && !found.patterns[filters.pattern] ? { [filters.pattern]: 0 } : {}) });
    patternSelect.replaceChildren(element("option", { value: "" }, "any pattern"), ...options.map(([name, count]) => element("option", { value: name, selected: name === filters.pattern }, `${name} (${formatCount(count)})`)));
    const maxWeight = Math.max(1e-9, ...found.rules.map((rule) => Math.abs(rule.weight ?? 0)));
    const rows = (some) => some.map((rule) => ruleRow(rule, maxWeight));
    const more = async (offset) => {
      const next = await getJson("rules", { ...query, top: 100, offset });
      if (next.total !== found.total) throw new Error(RUN_CHANGED);
      return { rows: rows(next.rules), done: offset + next.rules.length >= next.total };
    };
    const [list, ...button] = expandableList(rows(found.rules), found.rules.length < found.total ? more : null);
    list.className = "rules";
    total.textContent = formatRuleCount(found.total, found.constraints) + (words ? " with these words" : "");
    results.replaceChildren(found.total ? list : element("p", { class: "soft" }, words ? "No rule contains these words." : "No rule matches."), ...button);
  }
  const [single] = await Promise.all([n === undefined ? null : getJson("rule", { number: n }), update()]);
  const singleCard = single ? card("This rule", null, element("ul", { class: "rules" }, ruleRow(single, Math.max(1e-9, single.weight ?? 0), single))) : null;
  async function change(changed) {
    Object.assign(filters, changed);
    history.replaceState(history.state, "", viewUrl("rules", { q: words, ...filters }));
    singleCard?.remove();
    try {
      await update();
    } catch (error) {
      if (error.name === "AbortError") return; // replaced by a newer request
      results.replaceChildren(errorNotice(error));
    }
    if (input.isConnected) view.dataset.ready = location.hash;
  }
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      if (!input.isConnected || input.value.trim() === words) return;
      words = input.value.trim();
      change({});
    }, 250);
  });
  return { title: "Rules", content: [
    heading("Rules"),
    element("p", { class: "lead" }, total, element("span", {}, "the most important of each relation first; open a rule for examples")),
    singleCard,
    element("section", { class: "card" }, element("div", { class: "query rule-filters" }, element("div", { class: "combo" }, element("label", { for: "rule-words" }, "Filter"), input), relationField.root, element("div", { class: "combo" }, element("label", { for: "rule-pattern" }, "Pattern"), patternSelect)), results),
  ] };
}

async function askView({ h = null, r = null, t = null, top = "10", known = "" }) {
  const fields = [["Head", "entity", h], ["Relation", "relation", r], ["Tail", "entity", t]].map(([label, kind, start]) => typeahead({ label, kind, start, placeholder: "leave empty to predict" }));
  const includeKnown = element("input", { type: "checkbox", id: "include", checked: known === "1" });
  const topSelect = element("select", { id: "top" }, ["10", "50", "200"].map((n) => element("option", { value: n, selected: n === top }, n)));
  const form = element("form", { class: "card", onsubmit: (event) => {
    event.preventDefault();
    const [head, relation, tail] = fields.map((field) => field.value());
    navigate(viewUrl("ask", { h: head, r: relation, t: tail, top: topSelect.value === "10" ? "" : topSelect.value, known: includeKnown.checked ? "1" : "" }));
  } },
    element("div", { class: "query" }, fields.map((field) => field.root), element("button", { class: "primary", type: "submit" }, "Ask")),
    element("div", { class: "query-options small" }, element("label", {}, includeKnown, " include known facts"), element("label", {}, "number of answers: ", topSelect)));
  const filledIn = [h, r, t].filter((part) => part !== null).length;
  let answers = filledIn ? element("p", { class: "soft card" }, "Fill in two of the three fields and leave one empty.") : null;
  if (filledIn >= 2) {
    try {
      const found = await getJson("predict", { head: h, relation: r, tail: t, top, include_known: known === "1" });
      announce(pluralize(found.predictions.length, "answer"));
      answers = card("Answers", "Most probable first. Click a fact for its explanation.", found.predictions.length ? expandableList(found.predictions.map((f) => factRow(f, found.labels, null))) : element("p", { class: "soft" }, "No answers."));
    } catch (error) {
      const urlFor = (part) => (other) => viewUrl("ask", { h, r, t, top, known, [part]: other });
      const notice = error.status === 404 ? await unknownNameNotice([["entity", h, urlFor("h")], ["relation", r, urlFor("r")], ["entity", t, urlFor("t")]]) : null;
      answers = notice ?? errorNotice(error);
    }
  }
  return { title: "Ask", content: [heading("Ask"), element("p", { class: "lead" }, element("span", {}, "Fill in two fields. The one that you leave empty is predicted.")), form, answers] };
}

const errorNotice = (error) => element("section", { class: "card problem", role: "alert" }, element("p", {}, bdi(error.message || String(error))));

// ---- navigation between views

const VIEWS = new Map(Object.entries({ "": homeView, entity: entityView, fact: factView, rules: rulesView, ask: askView }));
let renderCount = 0, depth = 0; // depth: number of earlier views of this site in the history

async function render() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const current = ++renderCount, loading = document.getElementById("loading");
  const scrollY = history.state?.y;
  loading.classList.add("on");
  let result;
  try {
    if (!VIEWS.has(path)) throw new Error("This page does not exist.");
    result = await VIEWS.get(path)(Object.fromEntries(new URLSearchParams(query)));
  } catch (error) {
    result = { title: "Error", content: [heading("Error"), errorNotice(error), element("p", {}, element("a", { href: "#/" }, "Go to the start page"))] };
  }
  if (current !== renderCount) return; // another view was opened
  loading.classList.remove("on");
  document.title = `${result.title.slice(0, 200)} · plogicnet`;
  view.replaceChildren(...result.content.filter(Boolean));
  Promise.resolve(result.pending).then(() => {
    if (current !== renderCount) return;
    view.dataset.ready = location.hash;
    if (scrollY) window.scrollTo(0, scrollY);
  });
  for (const link of document.querySelectorAll("[data-view]")) {
    if (link.dataset.view === path) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  view.querySelector("h1")?.focus({ preventScroll: true });
  window.scrollTo(0, scrollY ?? 0);
}

function navigate(hash) {
  if (hash === location.hash) render();
  else location.hash = hash;
}

// ---- top bar, keyboard, light and dark

const search = typeahead({
  label: "Search for an entity", kind: "entity", placeholder: "Search for an entity", extra: [element("kbd", { class: "slash", "aria-hidden": "true" }, "/")],
  onChoose: (entry) => { search.clear(); search.input.blur(); navigate(viewUrl("entity", { name: entry })); },
});
document.getElementById("search").append(search.root);

const help = document.getElementById("help");
document.getElementById("keys").addEventListener("click", () => help.showModal());
document.getElementById("help-close").addEventListener("click", () => help.close());
document.getElementById("skip").addEventListener("click", (event) => { event.preventDefault(); view.focus(); });

const root = document.documentElement, theme = document.getElementById("theme");
const isDark = () => (root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
function storedTheme(value) {
  try { return value === undefined ? localStorage.getItem("theme") : localStorage.setItem("theme", value); } catch { return null; }
}
const updateThemeButton = () => (theme.textContent = isDark() ? "☀" : "☾");
function switchTheme() {
  root.dataset.theme = isDark() ? "light" : "dark";
  storedTheme(root.dataset.theme);
  updateThemeButton();
}
if (["light", "dark"].includes(storedTheme())) root.dataset.theme = storedTheme();
theme.addEventListener("click", switchTheme);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", updateThemeButton);
updateThemeButton();

function moveFocus(step) {
  const items = [...view.querySelectorAll("[data-move]")].filter((item) => item.checkVisibility());
  const at = items.indexOf(document.activeElement);
  items[at < 0 ? (step > 0 ? 0 : items.length - 1) : Math.max(0, Math.min(items.length - 1, at + step))]?.focus();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  const typing = event.target.matches("input, select, textarea");
  if (event.key === "Escape") {
    if (typing) return event.target.blur();
    if (location.hash.startsWith("#/fact")) {
      const { h } = Object.fromEntries(new URLSearchParams(location.hash.split("?")[1]));
      return depth ? history.back() : navigate(viewUrl("entity", { name: h }));
    }
  }
  if (typing) return;
  const action = { "/": () => search.input.focus(), "?": () => help.showModal(), g: () => navigate("#/"), a: () => navigate("#/ask"), r: () => navigate("#/rules"), t: switchTheme, ArrowDown: () => moveFocus(1), ArrowUp: () => moveFocus(-1) }[event.key];
  if (!action || (event.key.startsWith("Arrow") && !view.querySelector("[data-move]"))) return;
  event.preventDefault();
  action();
});

history.scrollRestoration = "manual";
let scrollTimer = 0;
window.addEventListener("scroll", () => {
  clearTimeout(scrollTimer);
  scrollTimer = setTimeout(() => history.replaceState({ depth, y: window.scrollY }, ""), 200);
}, { passive: true });
// A view that is already in the history keeps its depth; a new view gets `newDepth`.
function onNavigation(newDepth) {
  clearTimeout(scrollTimer);
  if (history.state?.depth === undefined) history.replaceState({ depth: newDepth }, "");
  depth = history.state.depth;
  render();
}
window.addEventListener("hashchange", () => onNavigation(depth + 1));
if (new URLSearchParams(location.search).has("token")) history.replaceState(history.state, "", `/${location.hash}`); // the token is now in a cookie
onNavigation(0);
