// The program as a graph that scopes fold: one scope at a time, layouts on the edges, collectives in their colours.

const GRAPH_ITEMS = 120;
const ARGUMENTS = 'arguments'; // the scope of the arguments, see graph.py
const ARGUMENTS_SHOWN = 8;
const READABLE = 0.85; // the smallest scale that a scope is opened at: labels are 10 pixels high

function svg(tag, attributes, ...children) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes || {})) if (value !== false && value !== null) node.setAttribute(name, value);
  append(node, children);
  return node;
}

// nodes: [scopes, title, kind, opcode, name, source, shape, operations]; edges: [from, to, layout]; see graph.py
function readGraph(graph, strings) {
  const root = { label: 'program', path: [], inner: new Map(), nodes: [], up: null };
  const nodes = graph.nodes.map(([scopes, title, kind, opcode, name, source, shape, operations], order) => {
    let scope = root;
    for (const label of scopes.map((n) => strings[n])) {
      if (!scope.inner.has(label)) scope.inner.set(label, { label, path: [...scope.path, label], inner: new Map(), nodes: [], up: scope });
      scope = scope.inner.get(label);
    }
    const node = { order, scope, title: strings[title], kind: strings[kind], opcode: strings[opcode], name: strings[name], source: strings[source], shape: strings[shape], operations };
    scope.nodes.push(node);
    return node;
  });
  const edges = graph.edges.map(([from, to, layout]) => ({ from: nodes[from], to: nodes[to], layout: strings[layout] }));
  return { root, nodes, edges };
}

function insideOf(scope) {
  return [...scope.nodes, ...[...scope.inner.values()].flatMap(insideOf)];
}

function graphView(data, strings, openCollective) {
  const graph = readGraph(data, strings);
  const trail = el('nav', { class: 'trail', 'aria-label': 'scopes' });
  const picture = el('div', { class: 'scroll graph' });
  const detail = el('div', { class: 'info', 'aria-live': 'polite' });
  const find = el('input', { type: 'search', placeholder: 'find an operation', 'aria-label': 'find an operation of the graph', on: { keydown: (event) => event.key === 'Enter' && search() } });
  const found = el('span', { class: 'quiet', 'aria-live': 'polite' });
  let scale = 1;
  let drawn = null;
  let hits = { words: '', at: -1 };
  const zoom = (factor) => {
    scale = Math.min(2, Math.max(0.2, scale * factor));
    resize();
  };
  const button = (label, title, action) => el('button', { type: 'button', title, 'aria-label': title, on: { click: action } }, label);

  function resize() {
    drawn.picture.setAttribute('width', drawn.width * scale);
    drawn.picture.setAttribute('height', drawn.height * scale);
  }

  // Scrolls sideways to a point of the picture, once it is laid out.
  function centre(x) {
    requestAnimationFrame(() => (picture.scrollLeft = x * scale - picture.clientWidth / 2));
  }

  // Nodes whose name, title or source has all the words, one after the other.
  function search() {
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return;
    const all = graph.nodes.filter((node) => words.every((word) => `${node.title} ${node.name} ${node.opcode} ${node.source}`.toLowerCase().includes(word)));
    hits = { words: find.value, at: hits.words === find.value ? (hits.at + 1) % Math.max(1, all.length) : 0 };
    found.textContent = all.length ? `${hits.at + 1} of ${all.length}` : 'none';
    if (all.length) open(all[hits.at].scope, all[hits.at]);
  }

  function open(scope, chosen = null) {
    const ways = [];
    for (let up = scope; up; up = up.up) ways.unshift(up);
    trail.replaceChildren(...ways.flatMap((way, n) => [n ? ' › ' : '', way === scope ? el('b', {}, way.label) : el('button', { type: 'button', class: 'link', on: { click: () => open(way) } }, way.label)]));
    const items = itemsOf(graph, scope);
    drawn = drawGraph(items, edgesOf(graph, scope, items), (item) => {
      if (item.scope) open(item.scope);
      else tell(item);
    });
    picture.replaceChildren(drawn.picture);
    scale = Math.max(READABLE, Math.min(1, (document.documentElement.clientWidth - 60) / drawn.width));
    resize();
    centre(drawn.heart);
    detail.textContent = `${countText(items.length, 'item')}; click on a scope to open it, on an operation for what it reads and writes`;
    const item = chosen && items.find((i) => i.node === chosen);
    if (item) {
      tell(item);
      drawn.shapes.get(item).focus({ preventScroll: true });
      drawn.shapes.get(item).scrollIntoView({ block: 'nearest', inline: 'center' });
    }
  }

  function tell(item) {
    const node = item.node;
    const ends = (list, end, word) => list.map((edge) => el('li', {}, `${word} ${edge[end].title} `, el('span', { class: 'quiet' }, `${edge[end].name} `), edge.layout ? el('code', {}, edge.layout) : null));
    const explain = node.kind === 'collective' ? el('button', { type: 'button', class: 'link', on: { click: () => openCollective(node.name) } }, 'why it is there') : null;
    const facts = [['scope', node.scope.path.join(' › ')], ['shape on a device', node.shape], ['operations', node.operations > 1 ? String(node.operations) : '']];
    detail.replaceChildren(el('p', {}, node.kind === 'collective' ? operationBadge(node.opcode) : null, el('b', {}, `${node.title} `), `${node.name} `, sourceText(node.source) || '', ' ', explain || ''), factList(facts),
      el('ul', { class: 'facts' }, ends(graph.edges.filter((edge) => edge.to === node).slice(0, 40), 'from', 'reads'), ends(graph.edges.filter((edge) => edge.from === node).slice(0, 40), 'to', 'is read by')));
  }

  open(mainScope(graph.root));
  return [el('p', { class: 'quiet' }, 'The program that each device runs. A box with a thick edge is a scope of the source; colours are collectives; words on an edge are the sharding of the value.'),
    el('div', { class: 'tools' }, find, button('find', 'find the next one', search), found, button('+', 'larger', () => zoom(1.25)), button('−', 'smaller', () => zoom(0.8))), trail, picture, detail];
}

// Where nearly all lies in one scope, there is nothing to choose yet.
function mainScope(root) {
  const all = insideOf(root).filter((node) => node.kind !== 'argument').length;
  for (let scope = root; ;) {
    const main = [...scope.inner.values()].find((inner) => insideOf(inner).length > 0.8 * all);
    if (!main || main.inner.size + main.nodes.length < 2) return scope;
    scope = main;
  }
}

// What a scope shows: its own operations, the scopes in it, and what is read from or goes to outside, in program order.
function itemsOf(graph, scope) {
  const own = [...scope.nodes.map((node) => ({ node, title: node.title, order: node.order, kind: node.kind })), ...[...scope.inner.values()].map((inner) => scopeItem(inner, 'scope'))];
  const mine = new Set(insideOf(scope));
  const others = new Map();
  const crossing = graph.edges.filter((edge) => mine.has(edge.from) !== mine.has(edge.to));
  const few = new Set(crossing.map((edge) => edge.from).filter((node) => node.kind === 'argument')).size <= ARGUMENTS_SHOWN;
  for (const edge of crossing) {
    const node = mine.has(edge.from) ? edge.to : edge.from;
    const other = few && node.kind === 'argument' ? node : outsideOf(scope, node);
    if (!others.has(other)) others.set(other, other.inner ? scopeItem(other, 'outside') : { node: other, title: other.title, order: other.order, kind: other.kind, outside: true });
  }
  const all = [...own, ...others.values()].sort((a, b) => a.order - b.order);
  if (all.length <= GRAPH_ITEMS) return all;
  const rest = all.slice(GRAPH_ITEMS);
  return [...all.slice(0, GRAPH_ITEMS), { title: `${rest.length} more`, order: Infinity, kind: 'rest', rest }];
}

function scopeItem(scope, kind) {
  const nodes = insideOf(scope);
  const moves = new Map();
  for (const node of nodes) if (node.kind === 'collective') moves.set(node.opcode, (moves.get(node.opcode) || 0) + 1);
  return { scope, title: scope.label, order: Math.min(...nodes.map((node) => node.order)), kind, moves: [...moves], operations: nodes.reduce((sum, node) => sum + node.operations, 0) };
}

// Of a node outside, the largest scope around it that does not hold this one; or the node.
function outsideOf(scope, node) {
  const around = new Set();
  for (let up = scope; up; up = up.up) around.add(up);
  let found = node;
  for (let up = node.scope; up && !around.has(up); up = up.up) found = up;
  return found;
}

// Edges between items, those of equal ends as one: { from, to, layouts }.
function edgesOf(graph, scope, items) {
  const owner = new Map();
  items.forEach((item, n) => {
    const members = item.rest ? item.rest : [item];
    for (const member of members) for (const node of member.scope ? insideOf(member.scope) : [member.node]) owner.set(node, n);
  });
  const mine = new Set(insideOf(scope));
  const found = new Map();
  for (const { from, to, layout } of graph.edges) {
    const [a, b] = [owner.get(from), owner.get(to)];
    if (a === undefined || b === undefined || a === b || (!mine.has(from) && !mine.has(to))) continue;
    const key = a * items.length + b;
    if (!found.has(key)) found.set(key, { from: a, to: b, layouts: new Map() });
    const { layouts } = found.get(key);
    if (layout) layouts.set(layout, [...(layouts.get(layout) || []), from.title]);
  }
  return [...found.values()];
}

function drawGraph(items, edges, choose) {
  const { places, back, ports, width, height } = placeGraph(items.length, edges.map((edge) => [edge.from, edge.to]));
  const shapes = new Map();
  const found = edges.map((edge, n) => ends(edge, places, back.has(n), ports[n]));
  const lines = edges.map((edge, n) => edgeShape(edge, found[n], back.has(n), items));
  // A curve comes three quarters of the way to where it bends, which can be beyond the outermost boxes.
  const reach = edges.map((edge, n) => found[n][0] + 0.75 * bend(found[n], back.has(n)));
  const left = Math.floor(Math.min(0, ...reach.map((x) => x - 6)));
  const whole = Math.ceil(Math.max(width, ...reach.map((x) => x + 6))) - left;
  const boxes = items.map((item, n) => {
    const box = itemShape(item, places[n], choose);
    shapes.set(item, box);
    return box;
  });
  const heaviest = items.reduce((best, item, n) => ((item.operations || 0) > (items[best].operations || 0) ? n : best), 0);
  const picture = svg('svg', { viewBox: `${left} 0 ${whole} ${height}`, role: 'group', 'aria-label': `graph of ${countText(items.length, 'item')}` }, lines, boxes, edgeLabels(edges, back, places, ports));
  return { picture, shapes, width: whole, height, heart: items.length ? places[heaviest].x + NODE.width / 2 - left : 0 };
}

// [x, y] where an edge begins, and where it ends.
function ends(edge, places, isBack, port) {
  const [a, b] = [places[edge.from], places[edge.to]];
  return isBack ? [a.x + NODE.width, a.y + NODE.height / 2, b.x + NODE.width, b.y + NODE.height / 2] : [port.from, a.y + NODE.height, port.to, b.y];
}

// How far to the side an edge bends: one that passes layers between its ends goes around what stands in its column.
function bend([x, y, to, down], isBack) {
  const passes = !isBack && down - y > NODE.height + 2 * NODE.down && Math.abs(x - to) < NODE.width;
  return passes ? (x < to ? -0.9 : 0.9) * NODE.width : 0;
}

function edgeShape(edge, [x, y, to, down], isBack, items) {
  const far = isBack ? 40 : Math.max(20, (down - y) / 2);
  const side = bend([x, y, to, down], isBack);
  const path = isBack ? `M${x},${y} C${x + far},${y} ${to + far},${down} ${to},${down}` : `M${x},${y} C${x + side},${y + far} ${to + side},${down - far} ${to},${down}`;
  const said = [...edge.layouts].map(([layout, names]) => `${layout}: ${[...new Set(names)].slice(0, 5).join(', ')}`).join('\n');
  return svg('path', { class: `edge${isBack ? ' back' : ''}`, d: path }, svg('title', {}, `${items[edge.from].title} to ${items[edge.to].title}${said ? `\n${said}` : ''}`));
}

// Labels of edges where there is room: one that would lie on a box or on another label is left to the edge's title.
function edgeLabels(edges, back, places, ports) {
  const taken = places.map(({ x, y }) => [x, y, x + NODE.width, y + NODE.height]);
  return edges.map((edge, n) => {
    const label = back.has(n) ? null : edgeLabel(edge, ends(edge, places, false, ports[n]), ports[n].turn);
    if (!label) return null;
    const [x, y, half] = [Number(label.getAttribute('x')), Number(label.getAttribute('y')), 3.1 * label.firstChild.length + 3];
    const box = [x - half, y - 10, x + half, y + 4];
    if (taken.some(([left, up, right, down]) => box[0] < right && left < box[2] && box[1] < down && up < box[3])) return null;
    taken.push(box);
    return label;
  });
}

function edgeLabel(edge, [x, y, to, down], turn) {
  const layouts = [...edge.layouts.keys()];
  if (!layouts.length) return null;
  const text = layouts.length === 1 ? layouts[0] : `${layouts.length} layouts`;
  const share = Math.min(0.75, (16 + 13 * (turn % 3)) / Math.max(26, down - y));
  const label = svg('text', { class: 'layout', x: x + (to - x) * share * share * (3 - 2 * share), y: y + (down - y) * share + 4 }, text.length > 30 ? `${text.slice(0, 29)}…` : text);
  append(label, [svg('title', {}, layouts.join('\n'))]);
  return label;
}

function itemShape(item, { x, y }, choose) {
  const opcode = item.node ? item.node.opcode : '';
  const kind = item.kind === 'collective' ? `collective ${kindClass(kindOf('collective', opcode, ''))}` : item.kind;
  const under = item.scope ? countText(item.operations, item.title === ARGUMENTS ? 'argument' : 'operation') : item.node ? `${item.node.name === item.title ? '' : `${item.node.name} `}${item.node.shape}` : '';
  const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
  const acts = Boolean(item.scope || item.node);
  const group = svg('g', { class: `item ${kind}${item.outside ? ' outside' : ''}`, transform: `translate(${x},${y})`, role: acts ? 'button' : false, tabindex: acts ? 0 : false, 'aria-label': `${item.title} ${under}` },
    svg('title', {}, `${item.title}\n${item.node ? `${item.node.name}\n${item.node.shape}` : under}`),
    svg('rect', { width: NODE.width, height: NODE.height, rx: 7 }),
    svg('text', { class: 'name', x: NODE.width / 2, y: 18 }, cut(item.title, 22)), svg('text', { class: 'under', x: NODE.width / 2, y: 34 }, cut(under, 28)),
    (item.moves || []).slice(0, 4).map(([move, n], k) => svg('g', { class: `item collective ${kindClass(kindOf('collective', move, ''))}`, transform: `translate(${6 + k * 30},${NODE.height - 9})` },
      svg('title', {}, `${n} ${move}`), svg('rect', { width: 26, height: 16, rx: 8 }), svg('text', { class: 'under', x: 13, y: 12 }, String(n)))));
  if (acts) {
    group.addEventListener('click', () => choose(item));
    group.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter' && event.key !== ' ') return;
      event.preventDefault();
      choose(item);
    });
  }
  return group;
}
