// An axis that charts share: which part of the step they show, and how skipped iterations are folded.

const GUTTER = 104;
const FOLD_SHARE = 0.08;
const FOLDS_SHARE = 0.4;
const LONG_SHARE = 0.02;

// `end` and `skipped` ([begin, end] each, not overlapping, ascending) in any unit; `format(value, step)` makes labels.
function sharedAxis(end, skipped, format) {
  const axis = { from: 0, to: 1, folded: false, canFold: false, parts: [], changed: [] };
  end = end || 1;
  skipped = skipped.filter(([a, b]) => b - a > LONG_SHARE * end);

  function build() {
    const folds = axis.folded ? skipped : [];
    const each = Math.min(FOLD_SHARE, FOLDS_SHARE / Math.max(folds.length, 1));
    const widths = folds.map(([a, b]) => Math.min(each, (b - a) / end));
    const hidden = folds.reduce((sum, [a, b]) => sum + b - a, 0);
    const scale = end > hidden ? (1 - widths.reduce((a, b) => a + b, 0)) / (end - hidden) : 0;
    axis.parts = [];
    let [time, place] = [0, 0];
    const add = (until, width, fold) => {
      if (until > time) axis.parts.push({ time, until, place, to: (place += width), fold });
      time = Math.max(time, until);
    };
    folds.forEach(([a, b], n) => {
      add(a, (a - time) * scale, false);
      add(b, widths[n], true);
    });
    add(end, Math.max(0, 1 - place), false);
  }

  function partAt(key, last, x) {
    let [low, high] = [0, axis.parts.length - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (axis.parts[middle][last] < x) low = middle + 1;
      else high = middle;
    }
    return axis.parts[low];
  }

  axis.place = (time) => {
    const p = partAt('time', 'until', time);
    return p.place + ((time - p.time) / (p.until - p.time)) * (p.to - p.place);
  };
  axis.time = (place) => {
    const p = partAt('place', 'to', place);
    return p.to > p.place ? p.time + ((place - p.place) / (p.to - p.place)) * (p.until - p.time) : p.time;
  };
  axis.x = (time, width) => GUTTER + ((axis.place(time) - axis.from) / (axis.to - axis.from)) * (width - GUTTER);
  axis.at = (x, width) => axis.time(Math.min(1, Math.max(0, axis.from + ((x - GUTTER) / (width - GUTTER)) * (axis.to - axis.from))));
  axis.show = (from, to) => {
    const width = Math.min(1, Math.max(1e-7, to - from));
    axis.from = Math.min(Math.max(0, from), 1 - width);
    axis.to = axis.from + width;
    axis.changed.forEach((draw) => draw());
  };
  axis.zoom = (factor, x, width) => {
    const middle = x === undefined ? (axis.from + axis.to) / 2 : axis.from + ((x - GUTTER) / (width - GUTTER)) * (axis.to - axis.from);
    axis.show(middle - (middle - axis.from) * factor, middle + (axis.to - middle) * factor);
  };
  axis.pan = (share) => {
    const width = axis.to - axis.from;
    const from = Math.min(Math.max(0, axis.from + share * width), 1 - width);
    axis.show(from, from + width);
  };
  axis.fold = (folded) => {
    axis.folded = folded;
    build();
    axis.show(0, 1);
  };
  // [x, label] of round numbers, none of them nearer than 76 pixels to another and none in folds.
  axis.ticks = (width) => {
    const out = [];
    for (const part of axis.parts.filter((p) => !p.fold)) {
      const low = Math.max(part.time, axis.time(axis.from));
      const high = Math.min(part.until, axis.time(axis.to));
      const pixels = axis.x(high, width) - axis.x(low, width);
      if (high <= low || pixels < 40) continue;
      const step = roundStep((high - low) / Math.max(1.5, pixels / 90));
      for (let n = Math.ceil(low / step - 1e-9); n * step <= high; n++) {
        const x = axis.x(n * step, width);
        if (!out.length || x - out[out.length - 1][0] >= 76) out.push([x, format(n * step, step)]);
      }
    }
    return out;
  };
  axis.canFold = skipped.length > 0;
  build();
  return axis;
}

function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(least || 1));
  return [1, 2, 5, 10].find((n) => n * power >= least * 0.999) * power;
}

// Nanoseconds with as many digits as `step` needs.
function nanosecondsText(ns, step) {
  if (ns === 0) return '0';
  const [unit, size] = [['s', 1e9], ['ms', 1e6], ['us', 1e3], ['ns', 1]].find(([, n]) => Math.max(ns, step) >= n) || ['ns', 1];
  return `${(ns / size).toFixed(Math.min(9, Math.max(0, Math.ceil(-Math.log10(step / size) - 1e-9))))} ${unit}`;
}

function drawTicks(context, axis, width, top, bottom) {
  context.strokeStyle = colour('line');
  context.fillStyle = colour('quiet');
  context.textAlign = 'center';
  context.textBaseline = 'top';
  for (const [x, label] of axis.ticks(width)) {
    context.beginPath();
    context.moveTo(x, top);
    context.lineTo(x, bottom);
    context.stroke();
    const half = context.measureText(label).width / 2;
    context.fillText(label, Math.min(Math.max(x, GUTTER + half), width - half), bottom + 4);
  }
}

// Hatched blocks where iterations were skipped: { time, until, lines } each.
function drawBlocks(context, axis, width, top, bottom, blocks) {
  blocks.forEach((block) => {
    const left = Math.max(GUTTER, axis.x(block.time, width));
    const right = Math.min(width, axis.x(block.until, width));
    if (right <= left) return;
    context.save();
    context.beginPath();
    context.rect(left, top, right - left, bottom - top);
    context.clip();
    context.fillStyle = colour('fold');
    context.fill();
    context.strokeStyle = colour('line');
    for (let x = left - (bottom - top); x < right; x += 9) {
      context.beginPath();
      context.moveTo(x, bottom);
      context.lineTo(x + bottom - top, top);
      context.stroke();
    }
    if (block.lines) drawBlockLabel(context, block.lines, left, right, top, bottom);
    context.restore();
  });
}

function drawBlockLabel(context, lines, left, right, top, bottom) {
  const wide = Math.max(...lines.map((line) => context.measureText(line).width)) + 8;
  const across = wide > right - left;
  context.translate((left + right) / 2, (top + bottom) / 2);
  if (across) context.rotate(-Math.PI / 2);
  if (across && (wide > bottom - top || lines.length * 15 > right - left)) return;
  context.fillStyle = colour('fold');
  context.fillRect(-wide / 2, -8 * lines.length, wide, 16 * lines.length);
  context.fillStyle = colour('ink');
  context.textAlign = 'center';
  context.textBaseline = 'middle';
  lines.forEach((line, n) => context.fillText(line, 0, (n - (lines.length - 1) / 2) * 15));
}

// Drag, wheel (with Ctrl, or when the chart has the focus), and keys; dragging with Shift passes two times to `onRange`.
function steer(chart, axis, onPoint, onClick, onRange = null) {
  const { canvas } = chart;
  let drag = null;
  canvas.tabIndex = 0;
  const width = () => canvas.clientWidth;
  canvas.addEventListener('wheel', (event) => {
    if (!event.ctrlKey && !event.metaKey && document.activeElement !== canvas) return;
    event.preventDefault();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) axis.pan(event.deltaX / width());
    else axis.zoom(1.0015 ** event.deltaY, event.offsetX, width());
  }, { passive: false });
  canvas.addEventListener('pointerdown', (event) => {
    drag = { x: event.clientX, moved: false, since: event.shiftKey && onRange ? axis.at(event.offsetX, width()) : null };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener('pointermove', (event) => {
    if (drag && Math.abs(event.clientX - drag.x) > (drag.moved ? 0 : 3)) {
      if (drag.since !== null) onRange(drag.since, axis.at(event.offsetX, width()));
      else axis.pan((drag.x - event.clientX) / (width() - GUTTER));
      drag = { x: event.clientX, moved: true, since: drag.since };
    }
    onPoint(event.offsetX, event.offsetY, width());
  });
  canvas.addEventListener('pointerup', (event) => {
    if (drag && !drag.moved && onClick) onClick(event.offsetX, event.offsetY, width());
    drag = null;
  });
  canvas.addEventListener('keydown', (event) => {
    const keys = {
      ArrowLeft: () => axis.pan(-0.2), ArrowRight: () => axis.pan(0.2), '+': () => axis.zoom(0.6), '=': () => axis.zoom(0.6),
      '-': () => axis.zoom(1 / 0.6), 0: () => axis.show(0, 1), Home: () => axis.show(0, axis.to - axis.from),
      End: () => axis.show(1 - (axis.to - axis.from), 1),
    };
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  });
  axis.changed.push(chart.redraw);
}

function zoomButtons(axis) {
  const button = (label, title, action) => el('button', { type: 'button', title, 'aria-label': title, on: { click: action } }, label);
  const fold = el('input', { type: 'checkbox', checked: axis.folded, on: { change: () => axis.fold(fold.checked) } });
  return el('div', { class: 'tools' },
    button('+', 'zoom in', () => axis.zoom(0.6)), button('−', 'zoom out', () => axis.zoom(1 / 0.6)),
    button('‹', 'earlier', () => axis.pan(-0.4)), button('›', 'later', () => axis.pan(0.4)), button('all', 'show all', () => axis.show(0, 1)),
    axis.canFold ? el('label', {}, fold, ' shorten repeated iterations (time is then not to scale)') : null,
    el('span', { class: 'quiet' }, 'drag to move; wheel with Ctrl, or + and − keys, to zoom'));
}
