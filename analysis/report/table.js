// A table with a filter over all its text, choices by column, sorting by any column, and rows made as they are needed.

const ROWS_AT_A_TIME = 25;

// columns: { title, value(row) (sorts), show(row) (text or nodes), text(row) (filters), numeric, choice, wide, words (sentences) }
// options: { label, detail(row) -> nodes under the row when it is opened, key(row), empty }
function dataTable(rows, columns, options) {
  const state = { words: [], chosen: new Map(), column: -1, down: false, shown: ROWS_AT_A_TIME, open: new Set() };
  const texts = new Map();
  const body = el('tbody');
  const count = el('span', { class: 'quiet', 'aria-live': 'polite' });
  const more = el('button', { type: 'button', hidden: true, on: { click: () => (state.shown += 500, render()) } });
  const heads = columns.map((column, n) => {
    const button = el('button', { type: 'button', on: { click: () => sortBy(n) } }, column.title);
    return el('th', { scope: 'col', class: column.numeric ? 'number' : false, title: column.hint }, button);
  });
  const table = el('table', { 'aria-label': options.label },
    el('thead', {}, el('tr', {}, options.detail ? el('th', { class: 'opener' }, el('span', { class: 'hidden' }, 'Open')) : null, heads)), body);
  const filter = el('input', {
    type: 'search', placeholder: 'filter', 'aria-label': `filter ${options.label}`,
    on: { input: () => (state.words = filter.value.toLowerCase().split(/\s+/).filter(Boolean), reset()) },
  });
  const choices = columns.filter((c) => c.choice).map(choice).filter(Boolean);
  const element = el('div', { class: 'table' },
    el('div', { class: 'tools' }, filter, choices, count), el('div', { class: 'scroll' }, table), more);

  function choice(column) {
    const values = [...new Set(rows.map(column.text))].sort();
    if (values.length < 2 || values.length > 40) return null;
    const select = el('select', {
      'aria-label': `only this ${column.title}`,
      on: { change: () => (select.value === '' ? state.chosen.delete(column) : state.chosen.set(column, values[select.value]), reset()) },
    }, el('option', { value: '' }, `any ${column.title}`), values.map((v, n) => el('option', { value: n }, v || 'none')));
    return select;
  }

  function textOf(row) {
    let found = texts.get(row);
    if (found === undefined) texts.set(row, found = columns.map((c) => c.text(row)).join('\n').toLowerCase());
    return found;
  }

  function wanted(row) {
    for (const [column, value] of state.chosen) if (column.text(row) !== value) return false;
    return state.words.every((word) => textOf(row).includes(word));
  }

  function sortBy(n) {
    const first = Boolean(columns[n].numeric);
    state.down = state.column === n ? !state.down : first;
    state.column = n;
    reset();
  }

  function sorted(found) {
    if (state.column < 0) return found;
    const { value } = columns[state.column];
    const sign = state.down ? -1 : 1;
    return found
      .map((row, n) => [value(row), n, row])
      .sort((a, b) => (a[0] < b[0] ? -sign : a[0] > b[0] ? sign : a[1] - b[1]))
      .map((entry) => entry[2]);
  }

  function reset() {
    state.shown = ROWS_AT_A_TIME;
    render();
  }

  function render() {
    const found = sorted(rows.filter(wanted));
    body.replaceChildren(...found.slice(0, state.shown).flatMap(rowsOf));
    heads.forEach((head, n) => {
      if (n === state.column) head.setAttribute('aria-sort', state.down ? 'descending' : 'ascending');
      else head.removeAttribute('aria-sort');
    });
    count.textContent = found.length === rows.length ? countText(rows.length, 'row') : `${found.length} of ${countText(rows.length, 'row')}`;
    more.hidden = found.length <= state.shown;
    more.textContent = `show more (${found.length - state.shown} left)`;
    if (!found.length) body.append(el('tr', {}, el('td', { colspan: columns.length + 1, class: 'quiet' }, rows.length ? 'nothing matches the filter' : options.empty || 'none')));
  }

  function rowsOf(row) {
    const cells = columns.map((c) => el('td', { class: c.numeric ? 'number' : c.words ? 'words' : c.wide ? 'wide' : false, 'data-title': c.title }, c.show ? c.show(row) : c.text(row)));
    if (!options.detail) return [el('tr', {}, cells)];
    const open = state.open.has(row);
    const button = el('button', { type: 'button', class: 'opener', 'aria-expanded': String(open), 'aria-label': `details of ${options.key(row)}` }, open ? '▾' : '▸');
    const line = el('tr', { class: 'clickable', 'data-key': options.key(row) }, el('td', { class: 'opener' }, button), cells);
    line.addEventListener('click', (event) => {
      if (event.target.closest('a, summary, button:not(.opener)') || String(getSelection())) return;
      toggle(row, line, button);
    });
    return open ? [line, detailRow(row)] : [line];
  }

  function detailRow(row) {
    return el('tr', { class: 'detail' }, el('td', { colspan: columns.length + 1 }, options.detail(row)));
  }

  function toggle(row, line, button) {
    const open = !state.open.has(row);
    if (open) {
      state.open.add(row);
      line.after(detailRow(row));
    } else {
      state.open.delete(row);
      if (line.nextSibling && line.nextSibling.className === 'detail') line.nextSibling.remove();
    }
    button.setAttribute('aria-expanded', String(open));
    button.textContent = open ? '▾' : '▸';
  }

  // Open the row with this key and bring it into view, without the filter where that hides it.
  function reveal(key) {
    const row = rows.find((r) => options.key(r) === key);
    if (!row) return false;
    if (!wanted(row)) {
      filter.value = '';
      for (const select of element.querySelectorAll('select')) select.value = '';
      state.words = [];
      state.chosen.clear();
    }
    state.open.add(row);
    state.shown = Math.max(state.shown, sorted(rows.filter(wanted)).indexOf(row) + 1);
    render();
    const line = [...body.children].find((tr) => tr.dataset.key === key);
    line.scrollIntoView({ block: 'center' });
    line.querySelector('button').focus({ preventScroll: true });
    return true;
  }

  if (options.sort !== undefined) {
    state.column = options.sort;
    state.down = Boolean(columns[options.sort].numeric);
  }
  render();
  return { element, reveal };
}
