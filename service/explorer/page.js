// The page: a program, one or two variants of it, what changes between them, and their reports.

const at = Object.fromEntries(['service', 'token', 'program', 'variants', 'comparison', 'reports'].map((id) => [id, document.getElementById(id)]));
const reports = reportsSection(at.reports);
const machine = el('select', { id: 'machine', on: { change: () => cards.forEach((card) => card.edited()) } });
const cardsRow = el('div', { class: 'variants' });
const differences = el('div');
let cards = [];
let current = null;

at.variants.append(el('div', { class: 'tools' }, el('label', { class: 'machine' }, 'Machine ', machine)), cardsRow);
at.comparison.append(differences);
const programs = programSection(at.program, begin);
document.addEventListener('refused', (event) => askToken(event.detail));
greet().then(follow);

// Is the service there, and does it let this page in?
async function greet() {
  try {
    const info = await requestJson('v1/info');
    const { machines } = await requestJson('v1/machines');
    at.service.textContent = `shardc ${info.version}`;
    machine.replaceChildren(el('option', { value: '' }, 'none: bytes, no seconds'), ...machines.map((found) => el('option', { value: found.name }, `${found.name}: ${bytesText(found.device.memory_bytes)} on each device`)));
    at.token.replaceChildren();
    at.token.hidden = true;
    return true;
  } catch (error) {
    if (error.status !== 401) append(at.program, [problemView(error)]);
    return false;
  }
}

// A link's program and variants, once the service has let this page in.
async function follow(welcome) {
  const link = welcome && current === null ? readLink(location.hash) : null;
  if (link === null) return;
  const [a, b] = link.variants;
  await programs.openStored(link, { machine: link.machine, ...a });
  if (current === null) return;
  if (b) addCard('B', b);
  cards.forEach((card) => card.start());
}

// The service wants a token: it stays in this tab and goes with it.
function askToken(error) {
  const refused = sessionStorage.getItem(TOKEN) !== null;
  const field = el('input', { type: 'password', id: 'token-field', autocomplete: 'off', required: true });
  const form = el('form', { class: 'tools', on: { submit: (event) => {
    event.preventDefault();
    sessionStorage.setItem(TOKEN, field.value.trim());
    greet().then(follow);
  } } }, el('label', { for: 'token-field' }, 'Token of this service'), field, el('button', { type: 'submit', class: 'main' }, 'Use it'),
  el('span', { class: 'quiet' }, 'kept in this tab only'));
  at.token.replaceChildren(form);
  if (refused) append(at.token, [problemView(error)]);
  at.token.hidden = false;
  field.focus();
}

function begin(program, start) {
  cards.forEach((card) => card.end());
  cards = [];
  current = program;
  document.title = `${program.facts.name} - shardc explorer`;
  if (start.machine !== undefined) machine.value = start.machine;
  const own = Object.entries(program.facts.mesh).map(([axis, size]) => [axis, String(size)]);
  const proposed = own.length || program.facts.devices > 1 ? own : [['data', '2'], ['model', '2']];
  addCard('A', { mesh: start.mesh || proposed, annotations: start.annotations || [] });
  at.variants.hidden = false;
  update();
}

function addCard(label, { mesh, annotations }) {
  const buttons = label === 'A' ? [['Change an annotation', branch], ['Look for remedies', (card) => card.advise()], ['Find annotations', (card) => card.find()]] : [['Keep only B', keep], ['Remove B', drop]];
  const handlers = { starting: () => label === 'B' && !cards[0].fresh() && cards[0].start(), done: update, take: tryOut, buttons };
  const card = variantCard({ label, mesh, annotations }, current, () => machine.value, handlers);
  cards.push(card);
  cardsRow.append(card.element);
  return card;
}

// B begins as a copy of A.
function branch(from) {
  if (cards.length > 1) cards[1].focus();
  else addCard('B', from.variant).focus();
  update();
}

// B is A with some annotations changed, over another mesh if one is given, compared at once.
function tryOut(card, changes, mesh = card.variant.mesh) {
  if (cards.length > 1) cards.pop().end();
  const { annotations } = card.variant;
  const tried = addCard('B', { mesh, annotations: withChanges(annotations, changes) });
  update();
  tried.focus();
  tried.start();
}

function drop() {
  cards.pop().end();
  cards[0].focus();
  update();
}

function keep(kept) {
  const { mesh, annotations, result, made } = kept.variant;
  cards[0].end();
  cards = [];
  cardsRow.replaceChildren();
  const card = addCard('A', { mesh, annotations });
  Object.assign(card.variant, { result, made });
  card.edited();
  card.focus();
  update();
}

function update() {
  history.replaceState(null, '', linkOf(current, machine.value, cards.map((card) => card.variant)));
  const made = cards.map((card) => card.variant).filter((variant) => variant.result);
  reports.show(made);
  at.comparison.hidden = made.length < 2;
  differences.replaceChildren();
  if (made.length === 2) append(differences, comparison(...made, current.facts));
  cardsRow.classList.toggle('two', cards.length > 1);
}
