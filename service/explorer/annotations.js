// The form for annotations: names completed from the program, specs by dimension.

const OWN_UNFILTERED = 8; // annotations of the program: more of them can be filtered
const PAIRS_UP_TO = 4; // axes: with more of them, pairs on one dimension are typed

// `rows` are { name, spec }, edited in place; `program` is what the service says of it, `axes()` the names of the mesh's.
function annotationForm(rows, program, axes, changed) {
  const values = new Map([...program.values, ...program.results, ...program.parameters].map((value) => [value.name, value]));
  const choices = [...program.parameters.map((v) => choiceOf(v, 'parameter')), ...program.results.map((v) => choiceOf(v, 'result')), ...program.values.map((v) => choiceOf(v, 'value'))];
  const body = el('div', { class: 'rows' });
  const add = el('button', { type: 'button', on: { click: () => appendRow({ name: '', spec: '' }) } }, 'Add an annotation');
  const refreshers = [];

  function appendRow(row) {
    rows.push(row);
    render();
    body.lastChild.querySelector('input').focus();
    changed();
  }

  function render() {
    refreshers.length = 0;
    body.replaceChildren(...rows.map(rowView));
  }

  function rowView(row, n) {
    const spec = el('input', { type: 'text', class: 'spec', 'aria-label': `spec of annotation ${n + 1}`, placeholder: 'None,model', spellcheck: 'false', autocapitalize: 'off', autocomplete: 'off', on: { input: () => ((row.spec = spec.value.trim()), refresh(), changed()) } });
    spec.value = row.spec;
    const dimensions = el('div', { class: 'dimensions' });
    const name = combobox({
      label: `name in annotation ${n + 1}`, value: row.name, placeholder: 'name, or a pattern such as *w1', choices: () => choices,
      change: (text) => {
        row.name = text.trim();
        const value = values.get(row.name);
        if (value && !row.spec) spec.value = row.spec = value.spec || value.shape.map(() => 'None').join(',');
        refresh();
        changed();
      },
    });
    const remove = el('button', { type: 'button', class: 'remove', title: 'remove', 'aria-label': `remove annotation ${n + 1}`, on: { click: () => (rows.splice(n, 1), render(), add.focus(), changed()) } }, '×');

    function refresh() {
      const value = values.get(row.name);
      dimensions.replaceChildren(...(value ? dimensionChoices(value, row.spec, axes(), (text) => {
        spec.value = row.spec = text;
        changed();
      }) : []));
    }

    refreshers.push(refresh);
    refresh();
    return el('div', { class: 'annotation' }, el('div', { class: 'row' }, name.element, el('span', { 'aria-hidden': 'true' }, '='), spec, remove), dimensions);
  }

  // The rows that an error is about, by the names that it says.
  function mark(error) {
    const told = error === null ? '' : `${error.message} ${error.where || ''}`;
    [...body.children].forEach((view, n) => {
      const wrong = rows[n].name !== '' && says(told, rows[n].name);
      for (const input of view.querySelectorAll('.row input')) wrong ? input.setAttribute('aria-invalid', 'true') : input.removeAttribute('aria-invalid');
    });
  }

  render();
  const element = el('fieldset', {}, el('legend', {}, 'Annotations'), ownAnnotations(program, (value) => appendRow({ name: value.name, spec: value.spec })), body, el('div', { class: 'tools' }, add));
  return { element, refresh: () => refreshers.forEach((refresh) => refresh()), mark, focus: () => (body.querySelector('input') || add).focus() };
}

// As a word of its own: x is not in "mesh axis".
function says(text, name) {
  const letter = /[\w.]/;
  for (let at = text.indexOf(name); at >= 0; at = text.indexOf(name, at + 1)) {
    if (!letter.test(text[at - 1] || ' ') && !letter.test(text[at + name.length] || ' ')) return true;
  }
  return false;
}

function choiceOf(value, kind) {
  return { text: value.name, hint: ` ${shapeText(value)} ${kind}${value.spec ? `, now ${value.spec}` : ''}` };
}

function shapeText(value) {
  return `${value.dtype}[${value.shape.join(',')}]`;
}

// A choice for each dimension; `take(spec)` hears what they say together.
function dimensionChoices(value, spec, axes, take) {
  const items = spec ? spec.split(',').map((item) => item.trim() || 'None') : [];
  if (items.length > value.shape.length) return [el('p', { class: 'fault' }, `${countText(items.length, 'entry', 'entries')}, but ${shapeText(value)} has ${countText(value.shape.length, 'dimension')}`)];
  const now = value.shape.map((_, n) => items[n] || 'None');
  return value.shape.map((size, n) => {
    const texts = [...new Set(['None', '?', ...axisChoices(axes), now[n]])];
    const select = el('select', { 'aria-label': `dimension ${n} of ${value.name}`, on: { change: () => ((now[n] = select.value), take(now.join(','))) } },
      texts.map((text) => el('option', { value: text, selected: text === now[n] }, text === 'None' ? 'whole' : text === '?' ? 'open' : `by ${text}`)));
    return el('label', {}, el('span', { class: 'quiet' }, `${size} `), select);
  });
}

function axisChoices(axes) {
  if (axes.length > PAIRS_UP_TO) return axes;
  return [...axes, ...axes.flatMap((a) => axes.filter((b) => b !== a).map((b) => `${a}+${b}`))];
}

// What the program itself says, to be changed by a click.
function ownAnnotations(program, change) {
  const own = [...program.parameters, ...program.results, ...program.values].filter((value) => value.spec);
  if (!own.length) return null;
  const list = el('ul', { class: 'own' });
  const filter = el('input', { type: 'search', placeholder: 'filter', 'aria-label': 'filter the annotations of the program', on: { input: () => fill() } });
  const count = el('span', { class: 'quiet', 'aria-live': 'polite' });
  const wanted = (value) => filter.value.toLowerCase().split(/\s+/).filter(Boolean).every((word) => `${value.name}=${value.spec}`.toLowerCase().includes(word));
  const fill = () => {
    const found = own.filter(wanted);
    count.textContent = found.length === own.length ? '' : `${found.length} of ${own.length}`;
    list.replaceChildren();
    show(found);
  };
  const show = (found) => append(list, found.map((value) => el('li', {}, el('code', {}, `${value.name}=${value.spec}`), ' ',
    el('button', { type: 'button', class: 'link', 'aria-label': `change ${value.name}`, on: { click: () => change(value) } }, 'change'))));
  const details = el('details', {}, el('summary', {}, `${countText(own.length, 'annotation')} of the program`), own.length > OWN_UNFILTERED ? el('div', { class: 'tools' }, filter, count) : null, list);
  details.addEventListener('toggle', fill, { once: true }); // there may be thousands
  return details;
}

function annotationFaults(rows) {
  const names = rows.map((row) => row.name);
  return rows.flatMap((row, n) => {
    if (!row.name) return [`annotation ${n + 1} has no name`];
    if (names.indexOf(row.name) < n) return [`${row.name} is annotated twice`];
    return row.spec ? [] : [`${row.name} has no spec: an entry per dimension, such as None,model`];
  });
}

function annotationsOf(rows) {
  return Object.fromEntries(rows.map((row) => [row.name, row.spec]));
}
