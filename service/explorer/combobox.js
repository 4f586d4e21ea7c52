// A text field with a list of completions under it: the ARIA pattern "editable combobox with list autocomplete".

const COMPLETIONS = 40;
let comboboxes = 0;

// options: { label, value, placeholder, choices() -> [{ text, hint }], change(text) }
function combobox(options) {
  const id = `names${(comboboxes += 1)}`;
  const list = el('ul', { id, role: 'listbox', 'aria-label': options.label, hidden: true });
  const input = el('input', {
    type: 'text', role: 'combobox', 'aria-label': options.label, 'aria-autocomplete': 'list', 'aria-controls': id, 'aria-expanded': 'false',
    autocomplete: 'off', autocapitalize: 'off', spellcheck: 'false', placeholder: options.placeholder,
    on: { input: () => (options.change(input.value), typed()), keydown: pressed, blur: close, click: () => open(input.value) },
  });
  input.value = options.value;
  let at = -1;

  // A name that is complete hides no other: who opens its list looks for another.
  function open(text) {
    if (options.choices().some((choice) => choice.text === text)) text = '';
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const found = options.choices().filter((choice) => words.every((word) => choice.text.toLowerCase().includes(word)));
    at = -1;
    list.replaceChildren(...found.slice(0, COMPLETIONS).map(choiceView));
    if (found.length > COMPLETIONS) list.append(el('li', { class: 'quiet', 'aria-disabled': 'true' }, `and ${found.length - COMPLETIONS} more: type a part of the name`));
    show(found.length > 0);
  }

  function typed() {
    open(input.value);
    if (options.choices().some((choice) => choice.text === input.value)) close();
  }

  function choiceView(choice, n) {
    return el('li', {
      id: `${id}-${n}`, role: 'option', 'aria-selected': 'false', 'data-text': choice.text,
      on: { mousedown: (event) => event.preventDefault(), click: () => take(choice.text) }, // the field keeps the focus
    }, el('span', {}, choice.text), el('span', { class: 'quiet' }, choice.hint));
  }

  function show(wanted) {
    list.hidden = !wanted;
    input.setAttribute('aria-expanded', String(wanted));
    if (!wanted) input.removeAttribute('aria-activedescendant');
  }

  function close() {
    show(false);
  }

  function take(text) {
    input.value = text;
    close();
    options.change(text);
  }

  function move(step) {
    if (list.hidden) open(input.value);
    const rows = [...list.querySelectorAll('[role=option]')];
    if (!rows.length) return;
    at = at < 0 ? (step > 0 ? 0 : rows.length - 1) : (at + step + rows.length) % rows.length;
    rows.forEach((row, n) => row.setAttribute('aria-selected', String(n === at)));
    input.setAttribute('aria-activedescendant', rows[at].id);
    rows[at].scrollIntoView({ block: 'nearest' });
  }

  function pressed(event) {
    const opened = !list.hidden;
    if (event.key === 'ArrowDown') move(1);
    else if (event.key === 'ArrowUp') move(-1);
    else if (event.key === 'Escape' && opened) close();
    else if (event.key === 'Enter' && opened && at >= 0) take(list.querySelectorAll('[role=option]')[at].dataset.text);
    else return;
    event.preventDefault();
  }

  return { element: el('div', { class: 'combobox' }, input, list), input };
}
