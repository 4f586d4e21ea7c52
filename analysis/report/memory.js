// Memory of a device over the step, and the largest values at its peak.

const MEMORY_HEIGHT = 190;

function memoryView(data, axis) {
  const times = data.curve.map((point) => point[0]);
  const near = Boolean(data.capacity) && data.capacity < 4 * data.needed;
  const top = Math.max(data.needed, data.peak_bytes, near ? data.capacity : 0) || 1;
  const peak = data.curve.reduce((best, point) => (point[1] > best[1] ? point : best), data.curve[0] || [0, 0]);
  const info = el('p', { class: 'info', 'aria-live': 'polite' }, 'point at the curve to see a value');
  const text = `memory in use over the step; at most ${bytesText(peak[1])}`;
  const chart = canvasBox(MEMORY_HEIGHT + 26, { role: 'img', 'aria-label': text }, draw);
  let pointed = null;
  const y = (bytes) => MEMORY_HEIGHT - (bytes / top) * (MEMORY_HEIGHT - 20);

  function draw(context, width) {
    drawTicks(context, axis, width, 4, MEMORY_HEIGHT);
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    const step = bytesStep(top / 4);
    for (let bytes = 0; bytes <= top; bytes += step) {
      context.fillStyle = colour('quiet');
      context.fillText(bytesText(bytes), GUTTER - 8, y(bytes));
    }
    context.save();
    context.beginPath();
    context.rect(GUTTER, 0, width - GUTTER, MEMORY_HEIGHT + 1);
    context.clip();
    drawCurve(context, width);
    drawLevel(context, width, data.needed, colour('quiet'), `needed ${bytesText(data.needed)}`, [2, 4]);
    if (near) drawLevel(context, width, data.capacity, colour('alarm'), `capacity ${bytesText(data.capacity)}`, [7, 4]);
    context.fillStyle = colour('alarm');
    dot(context, axis.x(peak[0], width), y(peak[1]));
    context.fillStyle = colour('ink');
    if (pointed !== null) dot(context, axis.x(pointed[0], width), y(pointed[1]));
    context.restore();
    drawBlocks(context, axis, width, MEMORY_HEIGHT - 8, MEMORY_HEIGHT, axis.parts.filter((part) => part.fold));
  }

  function drawCurve(context, width) {
    const first = Math.max(0, indexAt(axis.time(axis.from)));
    const until = axis.time(axis.to);
    context.beginPath();
    context.moveTo(axis.x(times[first] || 0, width), y(0));
    let x = axis.x(times[first] || 0, width);
    for (let n = first; n < times.length && times[n] <= until; n++) {
      x = axis.x(times[n], width);
      context.lineTo(x, y(n > 0 ? data.curve[n - 1][1] : 0));
      context.lineTo(x, y(data.curve[n][1]));
    }
    const last = Math.max(0, indexAt(until));
    x = axis.x(last + 1 < times.length ? Math.min(times[last + 1], data.end) : data.end, width);
    context.lineTo(x, y(data.curve.length ? data.curve[last][1] : 0));
    context.lineTo(x, y(0));
    context.globalAlpha = 0.3;
    context.fillStyle = colour('series');
    context.fill();
    context.globalAlpha = 1;
    context.strokeStyle = colour('series');
    context.lineWidth = 1.5;
    context.stroke();
    context.lineWidth = 1;
  }

  function drawLevel(context, width, bytes, shade, label, dash) {
    context.strokeStyle = context.fillStyle = shade;
    context.setLineDash(dash);
    context.beginPath();
    context.moveTo(GUTTER, y(bytes));
    context.lineTo(width, y(bytes));
    context.stroke();
    context.setLineDash([]);
    context.textAlign = 'right';
    context.textBaseline = 'bottom';
    context.fillText(label, width - 4, y(bytes) - 2);
  }

  function indexAt(time) {
    let [low, high] = [0, times.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (times[middle] <= time) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }

  function point(x, _, width) {
    const time = axis.at(x, width);
    const n = indexAt(time);
    pointed = n >= 0 ? [time, data.curve[n][1]] : null;
    if (pointed) {
      const when = data.unit === 'ns' ? nanosecondsText(Math.round(time), data.end / 1e5) : `kernel or transfer ${Math.floor(time).toLocaleString('en')}`;
      info.textContent = `${bytesText(pointed[1])} in use at ${when}`;
    }
    chart.redraw();
  }

  steer(chart, axis, point, null);
  const along = data.unit === 'step' ? el('p', { class: 'quiet' }, 'The axis numbers the kernels and transfers of the program in order, those in a loop once.') : null;
  return el('div', {}, along, data.capacity ? capacityView(data) : null, chart.box, info, peakTable(data));
}

// The share of a device's memory that the step needs, also where the curve is far below the capacity.
function capacityView(data) {
  const share = data.needed / data.capacity;
  const fill = el('span', { class: share > 1 ? 'full' : false });
  fill.style.setProperty('--share', Math.min(1, share));
  return [el('p', {}, `${bytesText(data.needed)} needed of the device's ${bytesText(data.capacity)}: `, el('b', {}, percent(share))),
    el('div', { class: 'gauge', role: 'img', 'aria-label': `${percent(share)} of the memory of a device` }, fill)];
}

function dot(context, x, y) {
  context.beginPath();
  context.arc(x, y, 3.5, 0, 7);
  context.fill();
}

function bytesStep(least) {
  let step = 1;
  while (step < least) step *= 2;
  return step;
}

// Rows that read alike, such as the results of one kernel, are numbered.
function numberEquals(rows) {
  const alike = new Map();
  for (const row of rows) {
    const key = `${row.title} ${row.name}`;
    alike.set(key, [...(alike.get(key) || []), row]);
  }
  for (const group of alike.values()) if (group.length > 1) group.forEach((row, n) => (row.name = `${row.name} (${n + 1})`));
}

function peakTable(data) {
  const rows = data.largest.map((row) => ({ ...row, title: lastScope(row.op_name) || row.name }));
  numberEquals(rows);
  const columns = [
    { title: 'bytes', numeric: true, value: (r) => r.nbytes, text: (r) => bytesText(r.nbytes) },
    { title: 'value', text: (r) => `${r.title} ${r.name}`, value: (r) => r.title, show: (r) => (r.kind === 'argument' ? r.title || r.name : [r.title, ' ', el('span', { class: 'quiet' }, r.name)]), wide: true },
    { title: 'shape on a device', text: (r) => r.shape, value: (r) => r.shape },
    { title: 'kind', text: (r) => r.kind, value: (r) => r.kind, choice: true },
    { title: 'in memory', text: (r) => `${r.first.toLocaleString('en')} to ${r.last.toLocaleString('en')}`, value: (r) => r.first, hint: 'numbers of the first and the last kernel or transfer' },
    { title: 'source', text: (r) => r.source, value: (r) => r.source, show: (r) => sourceText(r.source) },
  ];
  const facts = [`${bytesText(data.peak_bytes)} in use at the peak`];
  if (data.peak_step) facts.push(` (${data.peak_step})`);
  if (data.fixed) facts.push(`, ${bytesText(data.fixed)} of it arguments that are not donated`);
  if (data.others[0]) facts.push(`; ${countText(data.others[0], 'smaller value')} of ${bytesText(data.others[1])} together ${data.others[0] === 1 ? 'is' : 'are'} not listed`);
  return el('div', {}, el('h3', {}, 'Largest values at the peak'), el('p', {}, facts.join('')), el('p', { class: 'quiet' }, 'Kernels and transfers of the program are numbered in order, those in a loop once. A value is in memory from the first to the last number.'),
    dataTable(rows, columns, { label: 'values at the peak', sort: 0 }).element);
}
