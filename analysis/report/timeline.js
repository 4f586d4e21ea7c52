// What runs when: a row per engine, lanes where transfers overlap.

const LANES = [24, 17, 14, 12];

// A row's lanes are the thinner, the more there are.
function laneHeight(row) {
  return LANES[row.lanes.length - 1];
}

function bandHeight(row) {
  return Math.max(row.lanes.length * laneHeight(row) + 10, 34);
}

function timelineView(data, axis, strings, openCollective) {
  const work = data.work.map((row) => {
    const [kind, name, opcode, opName, source, limit, category] = row.map((n) => strings[n]);
    const title = kind === 'collective' ? `${opcode} ${data.values.get(name) || lastScope(opName)}` : lastScope(opName) || name;
    return { kind, name, opcode, source, limit, title, shade: kindOf(kind, opcode, category) };
  });
  const rows = engineRows(data);
  const above = data.skipped.length ? REPEAT_STRIP : 0;
  const high = above + rows.reduce((sum, row) => sum + bandHeight(row), 0);
  const repeats = data.skipped.map((s) => repeatOf(s));
  const info = el('p', { class: 'info', 'aria-live': 'polite' }, 'point at a bar to see its name; click on a transfer to open its explanation');
  const summary = `timeline of ${countText(data.events.length, 'event')} on ${data.engines.join(', ')}`;
  const chart = canvasBox(high + 26, { role: 'img', 'aria-label': summary }, draw);
  const find = el('input', { type: 'search', placeholder: 'find', 'aria-label': 'find in the timeline', on: { input: search } });
  const found = el('span', { class: 'quiet', 'aria-live': 'polite' });
  const totals = el('div', { class: 'totals' });
  const shown = el('button', { type: 'button', on: { click: () => select(axis.time(axis.from), axis.time(axis.to)) } }, 'totals of what is shown');
  let shades = new Map(); // colours are read once for each drawing
  let marked = null;
  let words = [];
  let range = null;

  // Work with all the words keeps its colour, the rest fades.
  function search() {
    words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    const hits = words.length ? data.events.filter((event) => data.kinds[event[1]] !== 'wait' && matches(work[event[2]])) : [];
    found.textContent = words.length ? `${countText(hits.length, 'event')}, ${nanosecondsText(hits.reduce((sum, event) => sum + event[4] - event[3], 0), 1)}` : '';
    chart.redraw();
  }

  function matches(w) {
    return words.every((word) => `${w.title} ${w.name} ${w.opcode} ${w.source}`.toLowerCase().includes(word));
  }

  function select(from, to) {
    range = [Math.min(from, to), Math.max(from, to)];
    totals.replaceChildren(...rangeTotals(data, work, range));
    chart.redraw();
  }

  function drawRange(context, width) {
    if (!range) return;
    const [left, right] = range.map((time) => Math.max(GUTTER, axis.x(time, width)));
    context.globalAlpha = 0.18;
    context.fillStyle = colour('accent');
    context.fillRect(left, 0, Math.max(1, right - left), high);
    context.globalAlpha = 1;
  }

  function draw(context, width) {
    shades = new Map([...new Set(work.map((w) => w.shade))].map((kind) => [kind, kindColour(kind)]));
    shades.set('wait', colour('wait'));
    drawTicks(context, axis, width, above, high);
    let y = above + 5;
    rows.forEach((row, n) => {
      drawBand(context, row, n, y - 5, width);
      context.save();
      context.beginPath();
      context.rect(GUTTER, 0, width - GUTTER, high);
      context.clip();
      row.lanes.forEach((lane, n) => {
        drawLane(context, lane, y + n * laneHeight(row), laneHeight(row), width);
        repeats.forEach((repeat) => drawRepeat(context, axis, lane, repeat, [y + n * laneHeight(row), laneHeight(row), width], paint));
      });
      context.restore();
      y += bandHeight(row);
    });
    drawBlocks(context, axis, width, above, high, repeats.filter((repeat) => !isRepeatDrawn(axis, repeat, width)));
    for (const repeat of repeats) if (isRepeatDrawn(axis, repeat, width)) drawRepeatFrame(context, axis, repeat, width, high);
    drawRange(context, width);
  }

  // The colour and the strength of an event that repeats.
  function paint(event) {
    const w = work[event[2]];
    return [shades.get(data.kinds[event[1]] === 'wait' ? 'wait' : w.shade), words.length && !matches(w) ? 0.12 : 0.5];
  }

  // The ground of a row, and beside it what does the work.
  function drawBand(context, row, n, y, width) {
    const middle = y + bandHeight(row) / 2;
    if (n % 2 === 0) {
      context.globalAlpha = 0.6;
      context.fillStyle = colour('fold');
      context.fillRect(0, y, width, bandHeight(row));
      context.globalAlpha = 1;
    }
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    context.fillStyle = colour('ink');
    context.font = '600 12px system-ui, sans-serif';
    context.fillText(fitted(context, row.engine, GUTTER - 14), GUTTER - 10, middle - 7);
    context.font = '11px system-ui, sans-serif';
    context.fillStyle = colour('quiet');
    context.fillText(row.engine === 'compute' ? 'kernels, waits' : 'transfers', GUTTER - 10, middle + 8);
    context.font = '12px system-ui, sans-serif';
  }

  function drawLane(context, lane, y, height, width) {
    context.font = `${Math.min(12, height - 2)}px system-ui, sans-serif`;
    const [from, to] = [axis.time(axis.from), axis.time(axis.to)];
    let last = -1;
    for (let n = firstEnding(lane, from); n < lane.length && lane[n][3] <= to; n++) {
      const event = lane[n];
      const left = axis.x(event[3], width);
      const right = axis.x(event[4], width);
      if (right < last + 0.4) continue;
      const w = work[event[2]];
      const kind = data.kinds[event[1]];
      const seen = Math.max(right - left - (right - left > 3 ? 1 : 0), 0.6);
      context.globalAlpha = words.length && !matches(w) ? 0.2 : 1;
      context.fillStyle = shades.get(kind === 'wait' ? kind : w.shade);
      context.fillRect(left, y + 1, seen, height - 2);
      if (kind === 'wait') hatch(context, left, y + 1, seen, height - 2, shades.get(w.shade));
      if (event === marked) {
        context.strokeStyle = colour('ink');
        context.lineWidth = 2;
        context.strokeRect(left, y + 1, seen, height - 2);
        context.lineWidth = 1;
      }
      if (right - left > 30 && kind !== 'wait') {
        context.fillStyle = colour('on-bar');
        context.textAlign = 'center';
        context.textBaseline = 'middle';
        const [a, b] = [Math.max(left, GUTTER), Math.min(right, width)];
        context.fillText(fitted(context, w.title, b - a - 6), (a + b) / 2, y + height / 2);
      }
      last = right;
    }
    context.globalAlpha = 1;
  }

  function eventAt(x, y, width) {
    let top = above + 5;
    for (const row of rows) {
      const n = Math.floor((y - top) / laneHeight(row));
      if (n >= 0 && n < row.lanes.length && x >= GUTTER) {
        const [time, repeat] = simulatedTime(repeats.filter((r) => isRepeatDrawn(axis, r, width)), axis.at(x, width));
        const event = row.lanes[n][firstEnding(row.lanes[n], time)];
        return event && (repeat ? event[3] <= time : axis.x(event[3], width) <= x + 2) ? event : null;
      }
      top += bandHeight(row);
    }
    return null;
  }

  function point(x, y, width) {
    const event = eventAt(x, y, width);
    if (event === marked) return;
    marked = event;
    if (event) info.replaceChildren(...describe(event));
    chart.canvas.style.cursor = event && work[event[2]].kind === 'collective' ? 'pointer' : '';
    chart.redraw();
  }

  function describe(event) {
    const w = work[event[2]];
    const around = data.around[event[5]].map(([loop, n]) => `${loop} iteration ${n}`).join(', ');
    const what = { wait: 'compute waits for ', transfer: 'links carry ' }[data.kinds[event[1]]] || '';
    const times = `${nanosecondsText(event[4] - event[3], Math.max((event[4] - event[3]) / 1000, 1))} from ${nanosecondsText(event[3], 1e-4 * Math.max(event[3], 1))}`;
    return [el('b', {}, `${what}${w.title}`), ` ${w.name}, ${w.opcode}${w.limit ? `, limited by ${w.limit}` : ''}: ${times} `,
      around ? `in ${around} ` : '', sourceText(w.source) || ''];
  }

  function open(x, y, width) {
    const event = eventAt(x, y, width);
    if (event && work[event[2]].kind === 'collective') openCollective(work[event[2]].name);
  }

  steer(chart, axis, point, open, select);
  const waits = data.events.some((event) => data.kinds[event[1]] === 'wait');
  const colours = kindsLegend(data.events.map((event) => work[event[2]].shade), [
    waits ? el('li', {}, el('span', { class: 'swatch waits', 'aria-hidden': 'true' }), 'hatched: compute waits, in the colour of the collective') : null,
    repeats.length ? el('li', {}, el('span', { class: 'swatch repeats', 'aria-hidden': 'true' }), 'faint, in a frame: iterations like the one before') : null,
  ]);
  return el('div', {}, zoomButtons(axis), el('div', { class: 'tools' }, find, found, shown, el('span', { class: 'quiet' }, 'drag with Shift to select a range')), chart.box, colours, info, totals);
}

// What happens from one time to another: by kind of work, each with the work that takes longest.
function rangeTotals(data, work, [from, to]) {
  const rows = new Map();
  for (const [engine, kind, number, begin, end] of data.events) {
    const inside = Math.min(end, to) - Math.max(begin, from);
    if (inside <= 0) continue;
    const w = work[number];
    const title = data.kinds[kind] === 'wait' ? 'compute waits' : w.shade;
    const key = `${data.engines[engine]} ${title}`;
    if (!rows.has(key)) rows.set(key, { key, engine: data.engines[engine], title, time: 0, count: 0, works: new Map() });
    const row = rows.get(key);
    row.time += inside;
    row.count += 1;
    row.works.set(number, (row.works.get(number) || 0) + inside);
  }
  const time = (ns) => nanosecondsText(Math.round(ns), Math.max(1, ns / 1000));
  const columns = [
    { title: 'engine', choice: true, text: (r) => r.engine, value: (r) => r.engine },
    { title: 'what', text: (r) => r.title, value: (r) => r.title },
    { title: 'time', numeric: true, text: (r) => time(r.time), value: (r) => r.time },
    { title: 'of the range', numeric: true, text: (r) => percent(r.time / (to - from)), value: (r) => r.time, hint: 'concurrent transfers are added' },
    { title: 'events', numeric: true, text: (r) => r.count.toLocaleString('en'), value: (r) => r.count },
  ];
  const most = (row) => el('ul', { class: 'facts' }, [...row.works].sort((a, b) => b[1] - a[1]).slice(0, 10).map(([number, ns]) => el('li', {}, `${work[number].title}: ${time(ns)} `, sourceText(work[number].source) || '')));
  const left = data.skipped.filter((s) => s[3] < to && s[4] > from).reduce((sum, s) => sum + Math.min(s[4], to) - Math.max(s[3], from), 0);
  return [el('h3', {}, `From ${time(from)} to ${time(to)}: ${time(to - from)}`), left ? el('p', { class: 'quiet' }, `${time(left)} of it are skipped iterations, which are not in these totals`) : '',
    dataTable([...rows.values()], columns, { label: 'totals of the range', key: (r) => r.key, sort: 2, detail: most, empty: 'nothing happens in it' }).element];
}

function hatch(context, x, y, width, height, shade) {
  if (width < 2) return;
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  context.strokeStyle = shade;
  context.lineWidth = 2;
  for (let at = x - height; at < x + width; at += 7) {
    context.beginPath();
    context.moveTo(at, y + height);
    context.lineTo(at + height, y);
    context.stroke();
  }
  context.restore();
}

// The first of a lane's events (ascending, not overlapping) that ends after `time`.
function firstEnding(lane, time) {
  let [low, high] = [0, lane.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (lane[middle][4] <= time) low = middle + 1;
    else high = middle;
  }
  return low;
}

function engineRows(data) {
  const rows = data.engines.map((engine) => ({ engine, lanes: [[]] }));
  for (const event of data.events) {
    const { lanes } = rows[event[0]];
    const free = lanes.find((lane) => !lane.length || lane[lane.length - 1][4] <= event[3]);
    if (free) free.push(event);
    else if (lanes.length < LANES.length) lanes.push([event]);
    else lanes.sort((a, b) => a[a.length - 1][4] - b[b.length - 1][4])[0].push(event);
  }
  return rows;
}
