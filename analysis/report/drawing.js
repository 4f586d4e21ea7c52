// How a tensor lies over the mesh: a grid of its parts, in each the devices that hold it.

const PARTS_COLOURED = 10;

function layoutDrawing(layout) {
  const parts = new Set(layout.panels.flatMap((panel) => (panel ? panel.cells.flat() : [])).map((cell) => (cell ? cell[0] : -1)));
  const coloured = !layout.panels.includes(null) && !parts.has(-1) && parts.size <= PARTS_COLOURED;
  return el('div', { class: 'layout' },
    el('ul', { class: 'facts' }, layout.facts.map((fact) => el('li', {}, fact))),
    el('div', { class: 'panels' }, layout.panels.map((panel) => (panel ? panelDrawing(layout, panel, coloured) : el('div', { class: 'gap' }, '⋯')))),
    el('p', { class: 'quiet' }, `numbers in the cells: the devices that hold the part${coloured && parts.size > 1 ? '; each part has its colour' : ''}; hatched: padding`));
}

function panelDrawing(layout, panel, coloured) {
  const columns = layout.columns ? layout.columns[1] : [undefined];
  const rows = layout.rows ? layout.rows[1] : [undefined];
  const corner = [layout.rows, layout.columns].filter(Boolean).map((cut) => cut[0]).join(' × ');
  const head = el('tr', {}, el('th', {}, corner), columns.map((part) => el('th', { scope: 'col' }, partTitle(part))));
  const lines = panel.cells.map((cells, r) => el('tr', {}, el('th', { scope: 'row' }, partTitle(rows[r])),
    cells.map((cell, c) => cellDrawing(cell, rows[r], columns[c], coloured))));
  return el('figure', {}, el('table', { class: 'grid' }, el('thead', {}, head), el('tbody', {}, lines)),
    panel.label ? el('figcaption', {}, panel.label) : null);
}

function partTitle(part) {
  if (part === undefined) return '';
  if (part === null) return '⋯';
  return [part[0], part[1] ? el('small', {}, part[1]) : null];
}

function cellDrawing(cell, row, column, coloured) {
  if (!cell) return el('td', { class: 'gap' }, '⋯');
  const node = el('td', { class: `part tint${coloured ? cell[0] : 0}`, title: `part ${cell[0]} on devices ${cell[1]}` }, cell[1]);
  for (const [part, property] of [[row, '--low'], [column, '--side']]) {
    if (part && part[2]) {
      node.classList.add('padded');
      node.style.setProperty(property, `${100 * (1 - part[2])}%`);
    }
  }
  return node;
}
