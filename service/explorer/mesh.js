// The form for a mesh: axes and sizes, outermost first.

// `rows` are [axis, size] as typed; `changed()` hears of every change. The rows themselves are edited.
function meshForm(rows, changed, hint) {
  const body = el('div', { class: 'rows' });
  const total = el('p', { class: 'quiet', 'aria-live': 'polite' });
  const add = el('button', { type: 'button', on: { click: () => (rows.push([newAxis(rows), '2']), render(rows.length - 1), tell()) } }, 'Add an axis');

  function tell() {
    count();
    changed();
  }

  const drawing = el('details', { on: { toggle: () => count() } }, el('summary', {}, 'Draw the mesh'));

  function count() {
    const mesh = Object.entries(meshOf(rows));
    drawing.hidden = !mesh.length;
    if (drawing.open) drawing.replaceChildren(drawing.firstChild, meshDrawing(mesh));
    total.textContent = rows.length ? countText(Object.values(meshOf(rows)).reduce((a, b) => a * b, 1), 'device') : hint;
  }

  function render(focus = -1) {
    body.replaceChildren(...rows.map((row, n) => {
      const axis = el('input', { type: 'text', value: row[0], 'aria-label': `axis ${n + 1}`, spellcheck: 'false', autocapitalize: 'off', autocomplete: 'off', on: { input: () => ((row[0] = axis.value.trim()), tell()) } });
      const size = el('input', { type: 'number', min: '1', step: '1', value: row[1], 'aria-label': `size of axis ${n + 1}`, class: 'size', on: { input: () => ((row[1] = size.value), tell()) } });
      const remove = el('button', { type: 'button', 'aria-label': `remove axis ${n + 1}`, title: 'remove', class: 'remove', on: { click: () => (rows.splice(n, 1), render(), add.focus(), tell()) } }, '×');
      return el('div', { class: 'row' }, axis, el('span', { 'aria-hidden': 'true' }, '='), size, remove);
    }));
    if (focus >= 0) body.children[focus].querySelector('input').select();
  }

  render();
  count();
  return el('fieldset', {}, el('legend', {}, 'Mesh'), body, el('div', { class: 'tools' }, add, total), drawing);
}

function newAxis(rows) {
  const taken = rows.map(([axis]) => axis);
  return ['data', 'model', 'seq', 'expert', 'stage'].find((name) => !taken.includes(name)) || `axis${rows.length}`;
}

// Sizes by axis, of what can be read.
function meshOf(rows) {
  return Object.fromEntries(rows.filter(([axis, size]) => axis && /^[1-9]\d*$/.test(size)).map(([axis, size]) => [axis, Number(size)]));
}

function meshFaults(rows) {
  const names = rows.map(([axis]) => axis);
  return rows.flatMap(([axis, size], n) => {
    if (!axis) return [`axis ${n + 1} has no name`];
    if (names.indexOf(axis) < n) return [`axis ${axis} is given twice`];
    if (/^\d+$/.test(axis)) return [`the name of axis ${axis} must not be a number`]; // JSON would not keep such axes in order
    return /^[1-9]\d*$/.test(size) ? [] : [`the size of axis ${axis} must be a whole number of at least 1`];
  });
}
