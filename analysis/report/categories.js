// What a step does, by kinds of operations: their shares, figures, and the kernels of each.

// The pieces of work of the tree, in program order.
function leavesOf(root) {
  return root.kind === 'leaf' ? [root] : root.children.flatMap(leavesOf);
}

// The costliest kind first.
function categoriesOf(leaves, measure) {
  const found = new Map();
  for (const leaf of leaves) {
    const title = kindOf(leaf.what, leaf.opcode, leaf.category);
    if (!found.has(title)) found.set(title, { title, leaves: [], seconds: 0, flops: 0, bytes: 0, sent: 0, count: 0 });
    const row = found.get(title);
    row.leaves.push(leaf);
    for (const key of ['seconds', 'flops', 'bytes', 'sent', 'count']) row[key] += leaf[key];
  }
  return [...found.values()].sort((a, b) => b[measure] - a[measure] || (a.title < b.title ? -1 : 1));
}

function rateText(perSecond) {
  return `${flopsText(perSecond)}/s`;
}

function categoriesView(leaves, totals, timed) {
  const measure = timed ? 'seconds' : 'bytes';
  const show = timed ? secondsText : bytesText;
  const rows = categoriesOf(leaves, measure);
  const all = rows.reduce((sum, row) => sum + row[measure], 0) || 1;
  const what = timed ? 'the time of kernels and of waiting for collectives, without idle time' : 'the bytes that memory reads and writes';
  const bar = el('div', { class: 'stack', role: 'img', 'aria-label': `${what}: ${rows.map((row) => `${row.title} ${percent(row[measure] / all)}`).join(', ')}` }, rows.filter((row) => row[measure] > 0).map((row) => {
    const piece = el('span', { class: `tinted ${kindClass(row.title)}`, title: `${row.title}: ${show(row[measure])}` });
    piece.style.setProperty('--share', row[measure] / all);
    return piece;
  }));
  const columns = [
    { title: 'kind', text: (r) => r.title, value: (r) => r.title, show: (r) => [kindSwatch(r.title), r.title] },
    { title: 'share', numeric: true, text: (r) => percent(r[measure] / all), value: (r) => r[measure], hint: `of ${what}` },
    { title: 'time', numeric: true, timed: true, text: (r) => secondsText(r.seconds), value: (r) => r.seconds, hint: 'of collectives: the time that compute waits' },
    { title: 'operations', numeric: true, text: (r) => (r.flops ? flopsText(r.flops) : ''), value: (r) => r.flops },
    { title: 'memory traffic', numeric: true, text: (r) => (r.bytes ? bytesText(r.bytes) : ''), value: (r) => r.bytes },
    { title: 'sent', numeric: true, text: (r) => (r.sent ? bytesText(r.sent) : ''), value: (r) => r.sent },
    { title: 'rate', numeric: true, timed: true, text: (r) => (r.flops && r.seconds ? rateText(r.flops / r.seconds) : ''), value: (r) => (r.seconds ? r.flops / r.seconds : 0), hint: 'operations per second of this time' },
    { title: 'runs', numeric: true, text: (r) => r.count.toLocaleString('en'), value: (r) => r.count, hint: 'executions of kernels and transfers in a step' },
  ].filter((column) => timed || !column.timed);
  return [bar, el('p', { class: 'quiet' }, `Shares of ${what}, by kinds of operations. A kernel with several kinds counts as its costliest kind.`),
    dataTable(rows, columns, { label: 'kinds of operations', key: (r) => r.title, sort: 1, detail: (r) => kernelsTable(r, totals, timed), empty: 'nothing runs' }).element];
}

function kernelsTable(row, totals, timed) {
  const columns = [
    { title: 'kernel', text: (r) => `${r.label} ${r.name} ${r.holds}`, value: (r) => r.label || r.name, show: (r) => [r.label || r.opcode, ' ', el('span', { class: 'quiet' }, r.name)], wide: true },
    { title: 'time', numeric: true, timed: true, text: (r) => secondsText(r.seconds), value: (r) => r.seconds },
    { title: 'operations', numeric: true, text: (r) => (r.flops ? flopsText(r.flops) : ''), value: (r) => r.flops },
    { title: 'memory traffic', numeric: true, text: (r) => (r.bytes ? bytesText(r.bytes) : ''), value: (r) => r.bytes },
    { title: 'share of the roof', numeric: true, timed: true, text: (r) => (roofShare(r, totals) === null ? '' : percent(roofShare(r, totals))), value: (r) => roofShare(r, totals) || 0, hint: 'share of the highest rate that memory and arithmetic allow' },
    { title: 'limit', choice: true, timed: true, text: (r) => r.limit, value: (r) => r.limit },
    { title: 'source', text: (r) => r.source, value: (r) => r.source, show: (r) => sourceText(r.source) },
  ].filter((column) => timed || !column.timed);
  return dataTable(row.leaves, columns, { label: `kernels: ${row.title}`, sort: timed ? 1 : 2 }).element;
}
