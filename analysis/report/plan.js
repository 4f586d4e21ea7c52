// The plan of layouts: what propagation wants, what was chosen, what else would cost, and where memory limits the plan.

function planView(plan, drawings, strings) {
  return [planFacts(plan), plan.memory.length ? planMemory(plan) : null, planRows(plan), planTable(plan, drawings, strings)];
}

function planFacts(plan) {
  const cost = (n) => costText(n, plan.unit);
  const what = plan.unit === 's' ? 'step time' : 'bytes sent';
  const facts = [
    [`${what}, partitioned program`, `${cost(plan.judged.cost)}, as propagated ${cost(plan.judged_wanted.cost)}`],
    ['memory of a device', `${bytesText(plan.judged.peak_bytes)}, as propagated ${bytesText(plan.judged_wanted.peak_bytes)}${plan.limit === null ? '' : `, at most ${bytesText(plan.limit)}`}`],
    ["by the plan's own model", `${cost(plan.cost)}, as propagated ${cost(plan.wanted_cost)}`],
    ['proven bound', plan.proof],
  ];
  const left = plan.taken ? null : el('p', {}, el('b', {}, 'The propagated layouts stay: '), plan.why);
  return [left, factList(facts)];
}

function planRows(plan) {
  if (!plan.rows.length) return null;
  return el('ul', { class: 'facts' }, plan.rows.map((row) => el('li', {}, `Memory limits the plan at ${row.at} `, sourceText(row.source), `: ${bytesText(row.usage)} of ${bytesText(row.limit)}; one more ${row.more} would save ${costText(row.more_saves, plan.unit)}. `,
    el('span', { class: 'quiet' }, row.heaviest.map(([name, n]) => `${name} ${bytesText(n)}`).join(', ')))));
}

// Bytes over the places of the program: planned as an area, propagated as a line, the limit dashed.
function planMemory(plan) {
  const most = 1.05 * Math.max(plan.limit || 0, 1, ...plan.memory.map((m) => Math.max(m[1], m[2])));
  const said = `memory of a device over the program: at most ${bytesText(Math.max(...plan.memory.map((m) => m[1])))} as planned, ${bytesText(Math.max(...plan.memory.map((m) => m[2])))} as propagated`;
  const chart = canvasBox(150, { role: 'img', 'aria-label': said }, (context, width, height) => {
    const [left, low] = [70, height - 4];
    const x = (place) => left + ((width - left - 4) * place) / plan.places;
    const y = (bytes) => low - ((low - 16) * bytes) / most;
    const trace = (n) => {
      context.beginPath();
      plan.memory.forEach((m, k) => {
        const end = k + 1 < plan.memory.length ? plan.memory[k + 1][0] : plan.places;
        context[k ? 'lineTo' : 'moveTo'](x(m[0]), y(m[n]));
        context.lineTo(x(end), y(m[n]));
      });
    };
    trace(1);
    context.lineTo(x(plan.places), y(0));
    context.lineTo(x(0), y(0));
    context.globalAlpha = 0.4;
    context.fillStyle = colour('series');
    context.fill();
    context.globalAlpha = 1;
    trace(2);
    context.strokeStyle = colour('quiet');
    context.stroke();
    context.fillStyle = colour('quiet');
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    const step = 2 ** Math.ceil(Math.log2(Math.max(4, most) / 4)); // a power of two, so that every figure is round
    for (let bytes = 0; bytes <= most; bytes += step) context.fillText(bytesText(bytes), left - 6, Math.max(8, y(bytes)));
    if (plan.limit === null) return;
    context.strokeStyle = context.fillStyle = colour('alarm');
    context.setLineDash([5, 4]);
    context.beginPath();
    context.moveTo(left, y(plan.limit));
    context.lineTo(width, y(plan.limit));
    context.stroke();
    context.setLineDash([]);
    context.textBaseline = 'bottom';
    context.fillText(`limit ${bytesText(plan.limit)}`, width - 4, y(plan.limit) - 2);
  });
  return [el('h3', {}, 'Memory over the program'), chart.box, el('p', { class: 'quiet' }, 'filled: as planned; line: as propagated; both by the plan\'s own model')];
}

function planTable(plan, drawings, strings) {
  const more = (n) => (n === null ? '' : `+${costText(n, plan.unit)}`);
  const columns = [
    { title: 'value', text: (r) => `${r.names.join(' ')} ${strings[r.op_name]}`, value: (r) => r.names[0], show: decidedValue, wide: true },
    { title: 'kind', text: (r) => (r.role === 'value' ? r.opcode : r.role), value: (r) => r.role, choice: true },
    { title: 'shape', text: (r) => r.shape, value: (r) => r.bytes * r.names.length, hint: 'sorts by bytes' },
    { title: 'as propagated', text: (r) => r.wanted[0], value: (r) => r.wanted[0], show: (r) => (r.moved ? layoutGlyph(r.wanted, false) : el('span', { class: 'quiet' }, 'the same')) },
    { title: 'as planned', text: (r) => `${r.chosen[0]} ${r.moved ? 'moved' : ''}`, value: (r) => r.chosen[0], show: (r) => layoutGlyph(r.chosen, true) },
    { title: 'on a device', numeric: true, text: (r) => bytesText(r.bytes), value: (r) => r.bytes },
    { title: 'extra cost as propagated', numeric: true, text: (r) => (r.moved ? more(r.wanted_more) : ''), value: (r) => (r.moved ? r.wanted_more || 0 : 0), hint: 'extra cost of the plan with the propagated layout here' },
    { title: 'extra cost of next best', numeric: true, text: (r) => more(r.next_more), value: (r) => r.next_more || 0, hint: 'extra cost of the plan with the next best layout here' },
    { title: 'source', text: (r) => strings[r.source], value: (r) => shortSource(strings[r.source]), show: (r) => sourceText(strings[r.source]) },
  ];
  plan.decisions.forEach((row, n) => (row.key = String(n)));
  return [el('h3', {}, 'Decided values'), el('p', { class: 'quiet' }, 'Each rectangle is a whole value, split into the parts of the devices. Filled: the part of the first device. Hatched: its partial value, which is not yet reduced.'),
    dataTable(plan.decisions, columns, { label: 'decided values', key: (r) => r.key, sort: columns.findIndex((c) => c.title === 'extra cost as propagated'), detail: (r) => decisionDetail(r, plan, drawings, strings), empty: 'there was nothing to decide' }).element];
}

function decidedValue(row) {
  const many = row.names.length > 1 ? el('span', { class: 'quiet' }, ` (+${row.names.length - 1} like it)`) : null;
  return el('span', { class: 'clip', title: row.names.join(' ') }, row.names[0], many);
}

// The whole value as a rectangle; the first device's part filled.
function layoutGlyph([words, , down, across, others, partial, flat], planned) {
  const box = el('div', { class: `glyph${planned ? ' planned' : ''}${partial ? ' partial' : ''}${flat ? ' flat' : ''}`, 'aria-hidden': 'true' }, el('i'));
  const lines = (n) => (n > 16 ? 1 : n);
  for (const [name, n] of [['--down', down], ['--across', across], ['--rows', lines(down)], ['--columns', lines(across)]]) box.style.setProperty(name, n);
  const parts = down * across * others;
  return el('div', { title: parts > 1 ? countText(parts, 'part') : 'every device has all of it' }, box, el('code', {}, words));
}

function decisionDetail(row, plan, drawings, strings) {
  const cost = (n) => (n === null ? 'not known' : `${costText(n, plan.unit)} more`);
  const facts = [
    ['values', row.names.slice(0, 8).join(', ') + (row.names.length > 8 ? ` and ${row.names.length - 8} more` : '')], ['operation', strings[row.op_name]], ['instruction', row.opcode], ['array', row.role === 'loop' ? String(row.leaf) : ''],
    ['made', row.times > 1 ? `${digits(row.times)} times` : ''], ['on a device', row.moved ? `${bytesText(row.bytes)}, as propagated ${bytesText(row.wanted_bytes)}` : bytesText(row.bytes)],
    ['with the propagated layout', row.moved ? cost(row.wanted_more) : ''], ['next best', row.next ? `${row.next[0]}: ${cost(row.next_more)}` : ''],
    ['where memory limits the plan', row.binds.map((n) => plan.rows[n].at).join(', ')],
  ];
  const drawn = row.moved ? [['as planned', row.chosen], ['as propagated', row.wanted]] : [['as planned and propagated', row.chosen]];
  return el('div', { class: 'reason' }, factList(facts), drawn.map(([title, layout]) => [el('h4', {}, title), layoutDrawing(drawings[layout[1]])]));
}
