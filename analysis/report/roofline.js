// The roofline: operations per second of each kernel over its operations per byte, below what the device allows.
// Williams, Waterman and Patterson, "Roofline", 2009.

const ROOF_HEIGHT = 320;

// The most operations per second at so many operations per byte.
function roofAt(intensity, totals) {
  return Math.min(totals.peak_flops, intensity * totals.bandwidth);
}

function roofShare(leaf, totals) {
  if (!totals.bandwidth || !totals.peak_flops || leaf.what === 'collective' || !(leaf.flops > 0 && leaf.bytes > 0 && leaf.seconds > 0)) return null;
  return leaf.flops / leaf.seconds / roofAt(leaf.flops / leaf.bytes, totals);
}

function rooflineView(leaves, totals) {
  const points = leaves.filter((leaf) => roofShare(leaf, totals) !== null).map((leaf) => ({ leaf, kind: kindOf(leaf.what, leaf.opcode, leaf.category), x: leaf.flops / leaf.bytes, y: leaf.flops / leaf.seconds }));
  if (!points.length) return [el('h3', {}, 'Roofline'), missing('No kernel has both operations and memory traffic.')];
  const ridge = totals.peak_flops / totals.bandwidth;
  const low = (values) => 10 ** Math.floor(Math.log10(Math.min(...values)));
  const high = (values) => 10 ** Math.ceil(Math.log10(Math.max(...values)));
  const [left, right] = [low([...points.map((p) => p.x), ridge / 10]), high([...points.map((p) => p.x), ridge * 10])];
  const [bottom, top] = [low(points.map((p) => 0.8 * p.y)), high([totals.peak_flops * 1.5])];
  const longest = Math.max(...points.map((p) => p.leaf.seconds));
  const info = el('p', { class: 'info', 'aria-live': 'polite' }, 'point at a dot to see its kernel');
  const label = `roofline: ${countText(points.length, 'kernel')} below ${rateText(totals.peak_flops)} and ${bandwidthText(totals.bandwidth)}`;
  const chart = canvasBox(ROOF_HEIGHT, { role: 'img', 'aria-label': label }, draw);
  const edge = 78;
  let marked = null;
  const along = (x, width) => edge + ((Math.log10(x) - Math.log10(left)) / (Math.log10(right) - Math.log10(left))) * (width - edge - 8);
  const up = (y) => ROOF_HEIGHT - 34 - ((Math.log10(y) - Math.log10(bottom)) / (Math.log10(top) - Math.log10(bottom))) * (ROOF_HEIGHT - 46);
  const size = (p) => 3 + 9 * Math.sqrt(p.leaf.seconds / longest);

  function draw(context, width) {
    drawScales(context, width);
    context.strokeStyle = colour('ink');
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(along(Math.max(left, bottom / totals.bandwidth), width), up(roofAt(Math.max(left, bottom / totals.bandwidth), totals)));
    context.lineTo(along(ridge, width), up(totals.peak_flops));
    context.lineTo(along(right, width), up(totals.peak_flops));
    context.stroke();
    context.lineWidth = 1;
    context.fillStyle = colour('ink');
    context.textAlign = 'right';
    context.textBaseline = 'bottom';
    context.fillText(`${rateText(totals.peak_flops)} (${totals.dtype.replaceAll('_', ' ')})`, along(right, width) - 4, up(totals.peak_flops) - 4);
    const middle = Math.sqrt(Math.max(left, bottom / totals.bandwidth) * ridge);
    const memory = `memory ${bandwidthText(totals.bandwidth)}`;
    const beside = Math.max(along(middle, width) - 8, edge + 6 + context.measureText(memory).width);
    context.fillText(memory, beside, up(roofAt(middle, totals)) - 8);
    for (const p of points) {
      context.beginPath();
      context.arc(along(p.x, width), up(p.y), size(p), 0, 7);
      context.globalAlpha = 0.85;
      context.fillStyle = kindColour(p.kind);
      context.fill();
      context.globalAlpha = 1;
      context.strokeStyle = colour(p === marked ? 'ink' : 'quiet');
      context.lineWidth = p === marked ? 2 : 0.6;
      context.stroke();
    }
    context.lineWidth = 1;
  }

  function drawScales(context, width) {
    context.strokeStyle = colour('line');
    context.fillStyle = colour('quiet');
    context.textBaseline = 'top';
    context.textAlign = 'center';
    const every = Math.ceil((Math.log10(right / left) * 72) / Math.max(60, width - edge));
    for (let n = Math.round(Math.log10(left)); n <= Math.round(Math.log10(right)); n += every) {
      const x = along(10 ** n, width);
      line(context, x, up(bottom), x, up(top));
      context.fillText(n < 0 ? String(10 ** n) : (10 ** n).toLocaleString('en'), Math.min(x, width - 20), ROOF_HEIGHT - 28);
    }
    context.fillText('operations per byte of memory traffic', (edge + width) / 2, ROOF_HEIGHT - 14);
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    const steps = Math.ceil(Math.log10(top / bottom) / 8);
    for (let n = Math.round(Math.log10(bottom)); n <= Math.round(Math.log10(top)); n += steps) {
      line(context, edge, up(10 ** n), width - 8, up(10 ** n));
      context.fillText(rateText(10 ** n), edge - 6, up(10 ** n));
    }
  }

  function line(context, x, y, to, down) {
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(to, down);
    context.stroke();
  }

  chart.canvas.addEventListener('pointermove', (event) => {
    const width = chart.canvas.clientWidth;
    const far = (p) => Math.hypot(along(p.x, width) - event.offsetX, up(p.y) - event.offsetY) - size(p);
    const nearest = points.reduce((best, p) => (far(p) < far(best) ? p : best));
    marked = far(nearest) < 6 ? nearest : null;
    if (marked) {
      const { leaf } = marked;
      info.replaceChildren(el('b', {}, leaf.label || leaf.name), ` ${leaf.name}: ${rateText(marked.y)}, ${percent(roofShare(leaf, totals))} of the roof at ${digits(marked.x)} operations per byte; ${secondsText(leaf.seconds)} in a step, limited by ${leaf.limit} `, sourceText(leaf.source) || '');
    }
    chart.redraw();
  });
  const without = leaves.filter((leaf) => leaf.what !== 'collective').length - points.length;
  return [el('h3', {}, 'Roofline'), el('p', { class: 'quiet' }, `Each dot is a kernel, larger where it takes longer. The line is the roof: the highest rate that memory (slope) and arithmetic (flat part) allow.${without ? ` ${countText(without, 'kernel')} without operations or bytes ${without === 1 ? 'is' : 'are'} not drawn.` : ''}`), chart.box, kindsLegend(points.map((p) => p.kind)), info];
}
