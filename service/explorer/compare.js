// Two variants beside each other: time, memory, traffic, and the collectives and tensors that differ.

function comparison(a, b, program) {
  return [
    changesView(a, b, program),
    figuresTable(figures(a.result), figures(b.result)),
    el('h3', {}, 'Collectives'),
    collectivesTable(a.result, b.result),
    el('h3', {}, 'Arguments and results with other layouts'),
    tensorsTable(a.result.report, b.result.report),
  ];
}

// What was changed in the forms, in the words of the command line.
function changesView(a, b, program) {
  const own = new Map([...program.values, ...program.results, ...program.parameters].map((value) => [value.name, value.spec]));
  const asked = [a, b].map((variant) => askedOf(JSON.parse(variant.made)));
  const names = [...new Set(asked.flatMap(Object.keys))].filter((name) => asked[0][name] !== asked[1][name]);
  if (!names.length) return el('p', { class: 'quiet' }, 'Both variants are the same.');
  const say = (name, spec) => {
    if (spec) return el('code', {}, name.startsWith('--') ? `${name} ${spec}` : `${name}=${spec}`);
    if (name.startsWith('--')) return el('span', { class: 'quiet' }, name === '--mesh' ? 'the mesh of the program' : 'no machine');
    return own.get(name) ? [el('code', {}, `${name}=${own.get(name)}`), el('span', { class: 'quiet' }, ' (the program)')] : el('span', { class: 'quiet' }, `${name} not annotated`);
  };
  return el('ul', { class: 'changes' }, names.map((name) => el('li', {}, say(name, asked[0][name]), ' → ', say(name, asked[1][name]))));
}

function askedOf({ mesh, machine, annotations }) {
  return { ...annotations, '--mesh': Object.entries(mesh).map(([axis, size]) => `${axis}=${size}`).join(','), '--machine': machine };
}

// Of one device and one step: { title, number, text(number), better: whether less is }.
function figures({ report, simulation: s }) {
  const found = [];
  const add = (title, number, text, better = true) => found.push({ title, number, text, better });
  if (s) {
    add('time of a step', s.step_seconds, secondsText);
    add('compute', s.compute_seconds, secondsText);
    add('exposed communication', s.exposed_seconds, secondsText);
    add('idle', s.idle_seconds, secondsText);
  }
  const full = s !== null && s.peak_bytes > s.capacity_bytes;
  add('memory', s ? s.peak_bytes : report.peak_bytes, full ? (n) => `${bytesText(n)}, more than ${bytesText(s.capacity_bytes)}` : bytesText);
  if (s) for (const [level, sent] of Object.entries(s.link_bytes)) add(`sent over ${level}`, sent, bytesText);
  else add('sent', report.wire_bytes, bytesText);
  add('collectives', collectiveRows({ report, simulation: s }).reduce((sum, row) => sum + row.count, 0), (n) => n.toLocaleString('en'));
  add('operations', s ? s.flops : report.flops, flopsText);
  add('devices', report.devices, (n) => n.toLocaleString('en'), false);
  return found;
}

function figuresTable(a, b) {
  const titles = [...new Set([...a, ...b].map((figure) => figure.title))];
  const rows = titles.map((title) => {
    const [x, y] = [a, b].map((side) => side.find((figure) => figure.title === title));
    const most = Math.max(x ? x.number : 0, y ? y.number : 0);
    return el('tr', {}, el('th', { scope: 'row' }, title), figureCell(x, most, 'a'), figureCell(y, most, 'b'),
      el('td', { class: 'number' }, x && y ? changeView(x.number, y.number, x.better) : ''));
  });
  return el('div', { class: 'scroll' }, el('table', { class: 'figures' },
    el('caption', { class: 'hidden' }, 'figures of one device in a step'),
    el('thead', {}, el('tr', {}, ['of one device, in a step', 'A', 'B', 'change'].map((title, n) => el('th', { scope: 'col', class: n > 2 ? 'number' : false }, title)))), el('tbody', {}, rows)));
}

function figureCell(figure, most, side) {
  if (!figure) return el('td', { class: 'quiet' }, 'none');
  const cell = el('td', { class: `figure ${side}` }, el('span', {}, figure.text(figure.number)), el('i', { 'aria-hidden': 'true' }));
  cell.style.setProperty('--share', most ? figure.number / most : 0);
  return cell;
}

// "−23%", in words beside the colour for who sees none.
function changeView(before, after, better = true) {
  if (before === after) return el('span', { class: 'quiet' }, 'same');
  const less = after < before;
  const text = before === 0 ? 'new' : after === 0 ? 'gone' : Math.abs(after - before) < 0.0005 * before ? '≈' : after > 10 * before ? `${digits(after / before)}×` : `${less ? '−' : '+'}${percent(Math.abs(after - before) / before)}`;
  return el('span', { class: better ? (less ? 'better' : 'worse') : false, title: better ? (less ? 'less than in A' : 'more than in A') : false }, text);
}

// Collectives of one device in a step: of the simulated one, or of the per-device program where no machine is named.
function collectiveRows({ report, simulation }) {
  if (!simulation) return report.collectives.map((row) => ({ ...row, seconds: null, exposed: null }));
  return simulation.work.filter((work) => work.kind === 'collective').map((work) => ({
    op: work.opcode, axes: work.axes, value: work.value, op_name: work.op_name, source: work.source, count: work.count,
    wire_bytes: work.wire_bytes * work.count, seconds: work.seconds * work.count, exposed: work.exposed_seconds,
  }));
}

// Rows that move the same value by the same operation over the same axes are one.
function joinedRows(a, b) {
  const found = new Map();
  [a, b].forEach((result, side) => {
    for (const row of collectiveRows(result)) {
      const value = row.value || lastScope(row.op_name || '');
      const key = JSON.stringify([row.op, row.axes, value, row.source]);
      if (!found.has(key)) found.set(key, { key, op: row.op, axes: row.axes, value, source: row.source, count: [0, 0], sent: [0, 0], seconds: [0, 0] });
      const sum = found.get(key);
      sum.count[side] += row.count;
      sum.sent[side] += row.wire_bytes;
      sum.seconds[side] += row.seconds || 0;
    }
  });
  return [...found.values()];
}

function collectivesTable(a, b) {
  const timed = Boolean(a.simulation && b.simulation);
  const rows = joinedRows(a, b);
  const both = (pair, text) => [text(pair[0]), text(pair[1])];
  const measured = timed ? 'seconds' : 'sent';
  const text = timed ? secondsText : bytesText;
  const columns = [
    { title: 'collective', choice: true, text: (r) => r.op, value: (r) => r.op, show: (r) => operationBadge(r.op) },
    { title: 'value', text: (r) => r.value, value: (r) => r.value, show: (r) => el('span', { class: 'clip', title: r.value }, r.value), wide: true },
    ...[0, 1].map((side) => ({ title: `${timed ? 'time' : 'sent'} ${'AB'[side]}`, numeric: true, text: (r) => (r.count[side] ? both(r[measured], text)[side] : ''), value: (r) => r[measured][side] })),
    { title: 'change', numeric: true, hint: 'sorts by the size of the change', text: (r) => text(Math.abs(r[measured][1] - r[measured][0])), value: (r) => Math.abs(r[measured][1] - r[measured][0]), show: (r) => changeView(...r[measured]) },
    { title: 'axes', choice: true, text: (r) => r.axes.join('+') || 'groups', value: (r) => r.axes.join('+') },
    { title: 'times', numeric: true, text: (r) => (r.count[0] === r.count[1] ? String(r.count[0]) : `${r.count[0]} → ${r.count[1]}`), value: (r) => r.count[1] - r.count[0] },
    ...(timed ? [{ title: 'sent', numeric: true, text: (r) => both(r.sent, bytesText).join(' → '), value: (r) => Math.max(...r.sent), show: (r) => (r.sent[0] === r.sent[1] ? bytesText(r.sent[0]) : r.count[0] && r.count[1] ? both(r.sent, bytesText).join(' → ') : bytesText(Math.max(...r.sent))) }] : []),
    { title: 'source', text: (r) => r.source || '', value: (r) => r.source || '', show: (r) => sourceText(r.source) },
  ];
  return dataTable(rows, columns, { label: 'collectives of both variants', key: (r) => r.key, sort: columns.findIndex((c) => c.title === 'change'), empty: 'no device sends anything in either' }).element;
}

function tensorsTable(a, b) {
  const lies = (side) => new Map(['parameters', 'results'].flatMap((kind) => side[kind].map((row) => [`${kind} ${row.index}`, { ...row, kind: kind.slice(0, -1), name: row.name || `number ${row.index}` }])));
  const [before, after] = [lies(a), lies(b)];
  const rows = [...before].filter(([key, row]) => after.has(key) && (row.sharding !== after.get(key).sharding || String(row.local_shape) !== String(after.get(key).local_shape)))
    .map(([key, row]) => ({ key, name: row.name, kind: row.kind, dtype: row.dtype, before: row, after: after.get(key) }));
  const columns = [
    { title: 'tensor', text: (r) => r.name, value: (r) => r.name, show: (r) => el('span', { class: 'clip', title: r.name }, r.name), wide: true },
    { title: 'kind', choice: true, text: (r) => r.kind, value: (r) => r.kind },
    ...['before', 'after'].flatMap((side, n) => [
      { title: `sharding ${'AB'[n]}`, text: (r) => r[side].sharding, value: (r) => r[side].sharding, show: (r) => el('code', {}, r[side].sharding), wide: true },
      { title: `on a device ${'AB'[n]}`, text: (r) => `${r.dtype}[${r[side].local_shape.join(',')}]`, value: (r) => r[side].local_shape.reduce((x, y) => x * y, 1) },
    ]),
  ];
  return dataTable(rows, columns, { label: 'tensors with other layouts', key: (r) => r.key, empty: 'all layouts are the same' }).element;
}
