// Who sends how much to whom: a cell per pair of devices, or of blocks of neighbouring devices.

function trafficView(data, links) {
  const most = Math.max(...data.cells.map((c) => c[2]), 0);
  const least = Math.min(...data.cells.map((c) => c[2]), most);
  const cells = new Map(data.cells.map(([i, j, n]) => [i * data.blocks + j, n]));
  const each = data.each;
  const info = el('p', { class: 'info', 'aria-live': 'polite' }, 'point at a cell to see its bytes');
  const text = `bytes from device to device; a pair sends at most ${bytesText(most)}`;
  const chart = canvasBox((width) => size(width) * data.blocks + 30, { role: 'img', 'aria-label': text }, draw);
  const left = 56;
  let marked = null;

  const size = (width) => (Math.min(width, 520) - left - 4) / data.blocks;
  const name = (n) => {
    const [first, last] = [n * each, Math.min((n + 1) * each, data.devices) - 1];
    return first === last ? `device ${first}` : `devices ${first} to ${last}`;
  };

  function draw(context, width) {
    const cell = size(width);
    context.fillStyle = colour('fold');
    context.fillRect(left, 0, cell * data.blocks, cell * data.blocks);
    for (const [i, j, n] of data.cells) {
      const share = least < most / 4 ? Math.log(n / least) / Math.log(most / least) : n / most;
      context.fillStyle = `color-mix(in oklab, ${colour('hot')} ${Math.round(25 + 75 * share)}%, ${colour('cold')})`;
      context.fillRect(left + j * cell, i * cell, Math.max(cell - (cell > 6 ? 1 : 0), 0.5), Math.max(cell - (cell > 6 ? 1 : 0), 0.5));
    }
    context.fillStyle = colour('quiet');
    const step = 2 ** Math.ceil(Math.log2(Math.max(1, (data.blocks * 40) / (cell * data.blocks))));
    for (let n = 0; n < data.blocks; n += step) {
      const label = String(n * each);
      context.textAlign = 'right';
      context.textBaseline = 'middle';
      context.fillText(label, left - 6, Math.max((n + 0.5) * cell, 6));
      context.textAlign = 'center';
      context.textBaseline = 'top';
      context.fillText(label, left + (n + 0.5) * cell, cell * data.blocks + 5);
    }
    if (marked) {
      context.strokeStyle = colour('ink');
      context.strokeRect(left + marked[1] * cell, marked[0] * cell, cell, cell);
    }
  }

  chart.canvas.addEventListener('pointermove', (event) => {
    const cell = size(chart.canvas.clientWidth);
    const [i, j] = [Math.floor(event.offsetY / cell), Math.floor((event.offsetX - left) / cell)];
    marked = i >= 0 && j >= 0 && i < data.blocks && j < data.blocks ? [i, j] : null;
    if (marked) info.textContent = `${name(i)} to ${name(j)}: ${bytesText(cells.get(i * data.blocks + j) || 0)} in a step`;
    chart.redraw();
  });
  const what = each === 1 ? 'Rows send, columns receive.' : `Rows send, columns receive; a cell is a block of ${each} devices.`;
  return el('div', { class: 'traffic' },
    el('div', {}, el('p', { class: 'quiet' }, `${what} Numbers are devices${least < most / 4 ? '; colours go by the logarithm' : ''}.`), chart.box, info,
      el('p', { class: 'scale' }, bytesText(least), el('span', { class: 'ramp', 'aria-hidden': 'true' }), bytesText(most))),
    links.length ? linksView(links) : null);
}

function linksView(links) {
  const most = Math.max(...links.map((link) => link[1]), 1);
  return el('div', {}, el('h3', {}, 'One device sends, by kind of links'), el('dl', { class: 'bars' }, links.map(([level, bytes]) => {
    const bar = el('span', { class: 'bar' });
    bar.style.setProperty('--share', bytes / most);
    return [el('dt', {}, level), el('dd', {}, bar, ` ${bytesText(bytes)}`)];
  })));
}
