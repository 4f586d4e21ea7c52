// The program as a tree: scopes, loops, and what runs in them, with figures added up; children are made when opened.

const CHILDREN_AT_A_TIME = 100;

// rows of the data: [parent, kind, label, ...]; see gather.py
function readTree(rows, strings) {
  const nodes = rows.map(([parent, kind, label, ...more]) => {
    const node = { parent, kind, label: strings[label], children: [], seconds: 0, flops: 0, bytes: 0, sent: 0, leaves: 0 };
    if (kind === 'loop') {
      node.trips = more[0];
      node.source = strings[more[1]];
    } else if (kind === 'leaf') {
      [node.what, node.name, node.opcode, node.source, node.holds, node.category, node.limit] = more.slice(0, 7).map((n) => strings[n]);
      [node.count, node.seconds, node.flops, node.bytes, node.sent] = more.slice(7);
      node.leaves = 1;
    }
    return node;
  });
  for (let n = nodes.length - 1; n > 0; n--) {
    const up = nodes[nodes[n].parent];
    up.children.push(nodes[n]);
    for (const key of ['seconds', 'flops', 'bytes', 'sent', 'leaves']) up[key] += nodes[n][key];
  }
  for (const node of nodes) node.children.reverse();
  return nodes[0];
}

const TREE_COLUMNS = [
  ['seconds', 'time', secondsText], ['flops', 'operations', flopsText], ['bytes', 'memory traffic', bytesText], ['sent', 'sent', bytesText],
];

function treeView(root, timed, openCollective) {
  const columns = TREE_COLUMNS.filter(([key]) => timed || key !== 'seconds');
  const bar = timed ? 'seconds' : root.flops ? 'flops' : 'bytes';
  const what = { seconds: 'time of the step', flops: 'operations', bytes: 'memory traffic' }[bar];
  let order = '';
  const body = el('tbody');
  const heads = columns.map(([key, title]) => el('th', { scope: 'col', class: 'number' },
    el('button', { type: 'button', on: { click: () => sortBy(order === key ? '' : key) } }, title)));
  const program = el('button', { type: 'button', title: 'as in the program', on: { click: () => sortBy('') } }, 'source scope, loop, kernel');
  const table = el('table', { role: 'treegrid', class: 'tree', 'aria-label': 'structure of the program' },
    el('thead', {}, el('tr', {}, el('th', { scope: 'col' }, program), heads)), body);
  table.addEventListener('keydown', onKey);

  function sortBy(key) {
    order = key;
    heads.forEach((head, n) => (columns[n][0] === key ? head.setAttribute('aria-sort', 'descending') : head.removeAttribute('aria-sort')));
    start();
  }

  function childrenOf(node) {
    return order ? [...node.children].sort((a, b) => b[order] - a[order]) : node.children;
  }

  function start() {
    body.replaceChildren();
    addChildren(root, null, 1);
    openMain();
    if (body.firstChild) body.firstChild.tabIndex = 0;
  }

  // Where nearly everything lies in one scope, there is nothing to choose yet.
  function openMain() {
    let node = root;
    while (node && node.children.length) {
      const main = node.children.reduce((a, b) => (b[bar] > a[bar] ? b : a));
      const row = [...body.children].find((line) => line.node === main);
      if (!row || !main.children.length || main.children.length > 30 || main[bar] < 0.9 * root[bar]) return;
      row.open(true);
      node = main;
    }
  }

  function addChildren(node, after, level, from = 0) {
    const children = childrenOf(node);
    const rows = children.slice(from, from + CHILDREN_AT_A_TIME).map((child) => rowOf(child, level));
    const left = children.length - from - rows.length;
    if (left > 0) {
      const button = el('button', { type: 'button' }, `show more (${left} left)`);
      const row = el('tr', { role: 'row', 'aria-level': level }, el('td', { colspan: columns.length + 1 }, button));
      row.level = level;
      row.style.setProperty('--level', level);
      button.addEventListener('click', () => {
        addChildren(node, row, level, from + CHILDREN_AT_A_TIME);
        row.remove();
      });
      rows.push(row);
    }
    if (after) after.after(...rows);
    else body.append(...rows);
  }

  function rowOf(node, level) {
    const inner = node.children.length > 0;
    const mark = el('span', { class: 'mark', 'aria-hidden': 'true' }, inner ? '▸' : '');
    const figures = columns.map(([key, title, show]) => el('td', { role: 'gridcell', class: 'number', 'data-title': title }, node[key] ? show(node[key]) : ''));
    const share = root[bar] ? node[bar] / root[bar] : 0;
    const fill = el('span', { class: 'share', title: `${percent(share)} of the ${what}` });
    fill.style.setProperty('--share', share);
    if (node.kind === 'leaf') fill.classList.add(kindClass(kindOf(node.what, node.opcode, node.category)));
    const name = el('td', { role: 'gridcell', class: 'name' }, el('div', {}, el('div', { class: 'label' }, mark, ...labelOf(node)), fill));
    const row = el('tr', { role: 'row', 'aria-level': level, 'aria-expanded': inner ? 'false' : false, tabindex: -1, class: node.kind }, name, figures);
    row.level = level;
    row.node = node;
    row.style.setProperty('--level', level);
    if (inner) {
      row.open = (open) => {
        if (open === (row.getAttribute('aria-expanded') === 'true')) return;
        row.setAttribute('aria-expanded', String(open));
        mark.textContent = open ? '▾' : '▸';
        if (open) addChildren(node, row, level + 1);
        else while (row.nextSibling && row.nextSibling.level > level) row.nextSibling.remove();
      };
      name.addEventListener('click', () => !String(getSelection()) && row.open(row.getAttribute('aria-expanded') !== 'true'));
    } else if (node.what === 'collective') {
      row.open = () => openCollective(node.name);
      name.addEventListener('click', () => openCollective(node.name));
    }
    return row;
  }

  function labelOf(node) {
    if (node.kind === 'loop') {
      const trips = node.trips === null ? 'unknown number of iterations' : countText(node.trips, 'iteration');
      return [el('span', { class: 'badge' }, 'loop'), el('b', {}, node.label), ` ${trips} `, sourceText(node.source)];
    }
    if (node.kind === 'scope') return [el('b', {}, node.label), el('span', { class: 'quiet' }, ` ${countText(node.leaves, 'piece')}`)];
    const times = node.count === 1 ? '' : ` ${node.count.toLocaleString('en')}×`;
    const what = node.what === 'collective' ? operationBadge(node.opcode) : kindSwatch(kindOf(node.what, node.opcode, node.category));
    return [what, node.label || node.opcode, el('span', { class: 'quiet' }, ` ${node.name}${times} `), sourceText(node.source),
      el('span', { class: 'holds', title: node.holds }, ` ${node.holds}`)];
  }

  function onKey(event) {
    const row = event.target.closest('tr[role=row]');
    if (!row || event.target.tagName === 'BUTTON') return;
    const expanded = row.getAttribute('aria-expanded');
    let to = null;
    if (event.key === 'ArrowDown') to = row.nextSibling;
    else if (event.key === 'ArrowUp') to = row.previousSibling;
    else if (event.key === 'Home') to = body.firstChild;
    else if (event.key === 'End') to = body.lastChild;
    else if (event.key === 'ArrowRight') expanded === 'false' ? row.open(true) : (to = expanded ? row.nextSibling : null);
    else if (event.key === 'ArrowLeft') {
      if (expanded === 'true') row.open(false);
      else for (to = row.previousSibling; to && to.level >= row.level;) to = to.previousSibling;
    } else if ((event.key === 'Enter' || event.key === ' ') && row.open) row.open(expanded === null || expanded === 'false');
    else return;
    event.preventDefault();
    if (to) {
      row.tabIndex = -1;
      to.tabIndex = 0;
      to.focus();
    }
  }

  start();
  const kinds = leavesOf(root).map((leaf) => kindOf(leaf.what, leaf.opcode, leaf.category));
  return [el('p', { class: 'quiet' }, `Scopes and loops of the source, with the kernels, copies and collectives in them (pieces). The line below each is its share of the ${what}.`),
    kindsLegend(kinds), el('div', { class: 'scroll' }, table)];
}
