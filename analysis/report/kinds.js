// Kinds of work: what a kernel computes, or which collective links carry. Each has one colour in all charts of the page.

const OTHER_KERNEL = 'other';
const OTHER_COLLECTIVE = 'other collective';
const WORK_KINDS = [
  'matrix products', 'convolutions', 'linear algebra', 'sorts', 'gathers and scatters', 'reductions', 'random numbers', 'elementwise', 'data movement',
  'copies', 'host moves', OTHER_KERNEL, 'all-gather', 'reduce-scatter', 'all-reduce', 'all-to-all', 'collective-permute', OTHER_COLLECTIVE,
];

// The kind of a piece of work: `what` is it (kernel, copy, move, collective), and of which group is a kernel.
function kindOf(what, opcode, category) {
  if (what === 'collective') {
    const name = opcode.replace('ragged-', '').replace('-start', '').replace('broadcast', 'permute');
    return WORK_KINDS.includes(name) ? name : OTHER_COLLECTIVE;
  }
  return WORK_KINDS.includes(category) ? category : OTHER_KERNEL;
}

// The class that gives an element the colour of a kind as --tint.
function kindClass(kind) {
  return `kind-${kind.replaceAll(' ', '-')}`;
}

// The same for a canvas.
function kindColour(kind) {
  return colour(kindClass(kind));
}

function kindSwatch(kind) {
  return el('span', { class: `swatch tinted ${kindClass(kind)}`, title: kind, 'aria-hidden': 'true' });
}

// A collective's operation in its colour.
function operationBadge(opcode) {
  return el('span', { class: `badge operation ${kindClass(kindOf('collective', opcode, ''))}` }, opcode);
}

// The colours of these kinds, in the order of all legends; `others` are entries of a chart's own.
function kindsLegend(kinds, others = []) {
  const used = new Set(kinds);
  return el('ul', { class: 'legend', 'aria-label': 'colours' }, WORK_KINDS.filter((kind) => used.has(kind)).map((kind) => el('li', {}, kindSwatch(kind), kind)), others);
}
