// The page: one report, or two beside each other with what differs; sections in order, each made when it comes near the screen.

const CAUSES_SHOWN = 2;

// `prefix` goes before the names of sections, of which a page of two reports has two each.
function showReport(data, place, prefix) {
  const { strings } = data;
  const timed = data.timeline !== null;
  const tree = readTree(data.tree, strings);
  let collectives = null;

  // By its name, or the name of a collective that the table has in numbered parts.
  function openCollective(name) {
    makeNow('collectives');
    const row = data.collectives.find((r) => r.name === name) || data.collectives.find((r) => r.name.startsWith(`${name} part `));
    return row ? collectives.reveal(row.name) : false;
  }

  function header() {
    const mesh = data.mesh.map(([axis, size]) => `${axis}=${size}`).join(', ');
    const t = data.totals;
    const places = (t.mapping || []).filter(([, place]) => place !== '-').map(([axis, place]) => `${axis} on ${place}`).join(', ');
    const over = `${countText(data.devices, 'device')}${mesh ? ` (${mesh})` : ''}${t.machine ? ` of ${t.machine}` : ''}${places ? `: ${places}` : ''}`;
    return el('header', {}, el('h1', {}, data.program), el('p', {}, over, data.source ? [el('br'), el('span', { class: 'quiet' }, data.source)] : null), tiles(), el('p', { class: 'quiet' }, 'All figures are of one device and one step. A step is one run of the program.'));
  }

  function tiles() {
    const t = data.totals;
    const found = [];
    const add = (title, value, hint) => found.push(el('div', { class: 'tile', title: hint }, el('dt', {}, title), el('dd', {}, value)));
    if (timed) {
      add('step', secondsText(t.seconds.step), 'one run of the program');
      add('MFU', t.mfu ? percent(t.mfu) : 'no products', `model operations as a share of the ${t.dtype} peak; with recomputation (HFU) ${percent(t.hfu)}`);
      add('exposed communication', secondsText(t.seconds.exposed), 'time in which compute waits for a collective');
    }
    add('operations', flopsText(t.flops), 'of one device in a step');
    add('sent', bytesText(t.wire_bytes), 'by one device in a step');
    add('collectives', t.collectives.toLocaleString('en'));
    const share = t.capacity_bytes ? ` of ${bytesText(t.capacity_bytes)}` : '';
    add('memory', `${bytesText(t.peak_bytes)}${share}`, 'that one device needs');
    return el('dl', { class: 'tiles' }, found);
  }

  function breakdown() {
    const s = data.totals.seconds;
    const busy = Math.max(0, s.compute - s.overlapped);
    const parts = [['compute alone', busy, 'busy'], ['overlapped communication', s.overlapped, 'both'], ['exposed communication (compute waits)', s.exposed, 'waits'], ['idle', s.idle, 'idle']];
    const bar = el('div', { class: 'stack', role: 'img', 'aria-label': parts.map(([title, n]) => `${title} ${percent(n / s.step)}`).join(', ') },
      parts.filter((part) => part[1] > 0).map(([title, n, tint]) => {
        const piece = el('span', { class: tint, title: `${title}: ${secondsText(n)}` });
        piece.style.setProperty('--share', n / s.step);
        return piece;
      }));
    const names = parts.filter((part) => part[1] > 0).map(([title, n, tint]) => el('li', {}, el('span', { class: `swatch ${tint}`, 'aria-hidden': 'true' }), `${title} ${secondsText(n)}, ${percent(n / s.step)}`));
    return el('section', { class: 'plain', 'aria-label': 'where the time goes' }, bar, el('ul', { class: 'legend' }, names));
  }

  function warnings() {
    if (!data.warnings.length && !data.notes.length) return null;
    const full = data.totals.peak_bytes > (data.totals.capacity_bytes || Infinity); // then the first note says so
    return el('section', { class: 'plain warnings', 'aria-label': 'warnings and notes' },
      el('ul', {}, data.warnings.map((w) => warningView(w, openCollective)), data.notes.map((note, n) => el('li', { class: full && n === 0 ? 'warning' : 'note' }, note))));
  }

  function collectivesSection() {
    const columns = [
      { title: 'collective', text: (r) => r.op, value: (r) => r.op, choice: true, show: (r) => operationBadge(r.op) },
      { title: 'value', text: (r) => `${strings[r.value]} ${strings[r.op_name]} ${r.name}`, value: (r) => strings[r.value] || strings[r.op_name], show: (r) => tensorTitle(r), wide: true },
      { title: 'axes', text: (r) => r.axes.join('+'), value: (r) => r.axes.join('+'), choice: true, show: (r) => axesBadge(r.axes, data.mesh) },
      { title: 'group', numeric: true, text: (r) => String(r.group_size), value: (r) => r.group_size },
      { title: 'times', numeric: true, text: (r) => `${r.count.toLocaleString('en')}${r.unknown_trip_count ? '?' : ''}`, value: (r) => r.count },
      { title: 'sent', numeric: true, text: (r) => bytesText(r.wire_bytes), value: (r) => r.wire_bytes, hint: 'by one device, all executions of a step' },
      { title: 'time', numeric: true, timed: true, text: (r) => secondsText(r.seconds), value: (r) => r.seconds, hint: 'all executions, alone on the links' },
      { title: 'exposed', numeric: true, timed: true, text: (r) => secondsText(r.exposed), value: (r) => r.exposed, hint: 'time that compute waits for it' },
      { title: 'source', text: (r) => strings[r.source], value: (r) => shortSource(strings[r.source]), show: (r) => sourceText(strings[r.source]), wide: true },
      { title: 'reason', text: (r) => strings[r.reason], value: (r) => strings[r.reason], show: (r) => reasonText(strings[r.reason]), words: true },
    ].filter((column) => timed || !column.timed);
    collectives = dataTable(data.collectives, columns, {
      label: 'collectives', key: (r) => r.name, sort: columns.findIndex((c) => c.title === (timed ? 'exposed' : 'sent')),
      detail: (r) => collectiveDetail(r, data.reasons[r.why], strings), empty: 'no device sends anything',
    });
    return [groupsLegend(data.collectives, data.mesh, data.device_order), collectives.element];
  }

  function tensorTitle(row) {
    const name = strings[row.value] || lastScope(strings[row.op_name]);
    return [name, name ? ' ' : '', el('span', { class: 'quiet' }, row.name)];
  }

  // A combined collective has a cause for each part: the first ones are there, the others a click away.
  function reasonText(reason) {
    const causes = reason.split('; ');
    if (causes.length <= CAUSES_SHOWN + 1) return reason;
    return [`${causes.slice(0, CAUSES_SHOWN).join('; ')} `, el('details', {}, el('summary', {}, `${causes.length - CAUSES_SHOWN} more causes`), el('ul', {}, causes.slice(CAUSES_SHOWN).map((cause) => el('li', {}, cause))))];
  }

  function tensorName(r) {
    return r.kind === 'value' ? `${r.instruction} ${r.name}` : r.name;
  }

  function tensorsSection() {
    const columns = [
      { title: 'tensor', text: (r) => tensorName(r), value: (r) => tensorName(r), show: (r) => el('span', { class: 'clip', title: tensorName(r) }, r.kind === 'value' ? `${r.instruction} ${lastScope(r.name)}` : r.name), wide: true },
      { title: 'kind', text: (r) => r.kind, value: (r) => r.kind, choice: true },
      { title: 'shape', text: (r) => r.shape, value: (r) => r.bytes, hint: 'sorts by bytes' },
      { title: 'on a device', text: (r) => r.local, value: (r) => r.local_bytes, hint: 'sorts by bytes' },
      { title: 'bytes on a device', numeric: true, text: (r) => bytesText(r.local_bytes), value: (r) => r.local_bytes },
      { title: 'sharding', text: (r) => r.sharding, value: (r) => r.sharding, show: (r) => el('code', {}, r.sharding), wide: true },
      { title: 'source', text: (r) => strings[r.source], value: (r) => shortSource(strings[r.source]), show: (r) => sourceText(strings[r.source]) },
    ];
    data.tensors.forEach((row, n) => (row.key = String(n)));
    const { element } = dataTable(data.tensors, columns, { label: 'tensors', key: (r) => r.key, detail: (r) => layoutDrawing(data.drawings[r.drawing]) });
    const left = data.tensors_left_out;
    const planned = data.plan && data.plan.taken ? ' The compiled program uses the planned layouts of the values under Plan.' : '';
    return [el('p', { class: 'quiet' }, `The propagated layouts.${planned}`), element, left ? el('p', { class: 'quiet' }, `${countText(left, 'smaller value')} inside the program left out`) : null];
  }

  // Of skipped blocks those that do not lie within another.
  function outermost(skipped) {
    const out = [];
    for (const s of [...skipped].sort((a, b) => a[3] - b[3] || b[4] - a[4])) {
      if (s[4] > s[3] && (!out.length || s[3] >= out[out.length - 1][4])) out.push(s);
    }
    return out;
  }

  const folds = timed ? outermost(data.timeline.skipped) : [];
  const timeAxis = timed ? sharedAxis(data.timeline.end, folds.map((s) => [s[3], s[4]]), nanosecondsText) : null;

  function movedValues() {
    return new Map(data.collectives.map((row) => [row.name, strings[row.value]]));
  }

  function memoryAxis() {
    return timed ? timeAxis : sharedAxis(data.memory.end, [], (n) => String(Math.round(n)));
  }

  const sections = [
    ['structure', 'Structure', true, () => treeView(tree, timed, openCollective)],
    ['operations', 'Operations', true, () => [categoriesView(leavesOf(tree), data.totals, timed), rooflineMissing(data) || rooflineView(leavesOf(tree), data.totals)]],
    ['collectives', 'Collectives', true, () => collectivesMissing(data) || collectivesSection()],
    ['graph', 'Graph', true, () => graphMissing(data) || graphView(data.graph, strings, openCollective)],
    ['plan', 'Plan', data.plan !== null, () => planView(data.plan, data.drawings, strings)],
    ['timeline', 'Timeline', true, () => timelineMissing(data) || timelineView({ ...data.timeline, skipped: folds, values: movedValues() }, timeAxis, strings, openCollective)],
    ['memory', 'Memory', true, () => memoryMissing(data) || memoryView(data.memory, memoryAxis())],
    ['traffic', 'Traffic', true, () => trafficMissing(data) || trafficView(data.traffic, data.totals.links)],
    ['tensors', 'Tensors', true, tensorsSection],
  ].filter((section) => section[2]);
  const waiting = new Map();
  const section = (id) => document.getElementById(prefix + id);

  function makeNow(id) {
    const make = waiting.get(id);
    if (!make) return;
    waiting.delete(id);
    append(section(id), [make()]);
  }

  const watcher = new IntersectionObserver((entries) => entries.forEach((entry) => entry.isIntersecting && makeNow(entry.target.id.slice(prefix.length))), { rootMargin: '400px' });
  const main = el('main', {}, header(), timed ? breakdown() : null, warnings(), sections.map(([id, title, , make]) => {
    waiting.set(id, make);
    return el('section', { id: prefix + id, 'aria-labelledby': `${prefix}${id}-title` }, el('h2', { id: `${prefix}${id}-title` }, title));
  }));
  const nav = el('nav', { 'aria-label': 'sections' }, sections.map(([id, title]) => el('a', { href: `#${prefix}${id}`, on: { click: () => makeNow(id) } }, title)));
  place.append(nav, main);
  sections.forEach(([id]) => watcher.observe(section(id)));
  window.addEventListener('beforeprint', () => sections.forEach(([id]) => makeNow(id)));
}

// Figures of two reports, of one device and one step: [title, value(data), text].
const FIGURES = [
  ['step', (d) => (d.totals.seconds ? d.totals.seconds.step : null), secondsText], ['exposed communication', (d) => (d.totals.seconds ? d.totals.seconds.exposed : null), secondsText],
  ['operations', (d) => d.totals.flops, flopsText], ['sent', (d) => d.totals.wire_bytes, bytesText], ['memory', (d) => d.totals.peak_bytes, bytesText],
  ['executed collectives', (d) => d.collectives.reduce((sum, row) => sum + row.count, 0), (n) => n.toLocaleString('en')], ['devices', (d) => d.devices, (n) => n.toLocaleString('en')],
];

function differences(a, b) {
  const name = (d) => `${d.program}, ${d.mesh.map(([axis, size]) => `${axis}=${size}`).join(', ') || 'one device'}${d.totals.machine ? ` of ${d.totals.machine}` : ''}`;
  const rows = FIGURES.map(([title, value, text]) => [title, value(a), value(b), text]).filter((row) => row[1] !== null || row[2] !== null);
  const cell = (n, text) => el('td', { class: 'number' }, n === null ? 'not simulated' : text(n));
  const change = (x, y) => (x === null || y === null ? '' : x === y ? 'same' : x === 0 ? 'new' : y < x / 10 || y > 10 * x ? `× ${digits(y / x)}` : `${y < x ? '−' : '+'}${percent(Math.abs(y - x) / x)}`);
  return el('section', { class: 'plain differences', 'aria-label': 'both reports' }, el('h1', {}, 'Two reports'), el('div', { class: 'scroll' }, el('table', {},
    el('thead', {}, el('tr', {}, ['of one device, in a step', name(a), name(b), 'change'].map((title, n) => el('th', { scope: 'col', class: n ? 'number' : false }, title)))),
    el('tbody', {}, rows.map(([title, x, y, text]) => el('tr', {}, el('th', { scope: 'row' }, title), cell(x, text), cell(y, text), el('td', { class: 'number' }, change(x, y))))))));
}

const read = (id) => (document.getElementById(id) ? JSON.parse(document.getElementById(id).textContent) : null);
const [first, second] = [read('data'), read('beside')];
const whole = document.getElementById('page');
if (second === null) showReport(first, whole, '');
else {
  const sides = [el('div', { class: 'side' }), el('div', { class: 'side' })];
  whole.append(differences(first, second), el('div', { class: 'sides' }, sides));
  showReport(first, sides[0], '');
  showReport(second, sides[1], 'second-');
}
