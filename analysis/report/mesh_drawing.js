// The mesh: its devices as a grid, and the groups that collectives along some axes have.

const MESH_ROWS = 16;
const MESH_COLUMNS = 32;
const MOST_GROUPED = 65536;

// mesh: [[axis, size], ...], outermost first. The last axis goes across, all others down; `order` has the device at each
// place where that is not the place itself.
function meshDrawing(mesh, order = null) {
  if (!mesh.length) return el('p', { class: 'quiet' }, 'one device');
  const across = mesh[mesh.length - 1][1];
  const outer = mesh.slice(0, -1);
  const down = outer.reduce((n, [, size]) => n * size, 1);
  const columns = shownPlaces(across, MESH_COLUMNS);
  const rows = shownPlaces(down, MESH_ROWS);
  const title = (n) => (n === null ? '⋯' : outer.map(([axis, size], k) => `${axis}=${Math.floor(n / outer.slice(k + 1).reduce((a, [, b]) => a * b, 1)) % size}`).join(' '));
  const head = el('tr', {}, el('th', {}), columns.map((n) => el('th', { scope: 'col' }, n === null ? '⋯' : `${mesh[mesh.length - 1][0]}=${n}`)));
  const body = rows.map((r) => el('tr', {}, el('th', { scope: 'row' }, title(r)), columns.map((c) => el('td', { class: r === null || c === null ? 'gap' : 'part mesh' }, r === null || c === null ? '⋯' : String(order ? order[r * across + c] : r * across + c)))));
  const text = `${mesh.map(([axis, size]) => `${axis}=${size}`).join(', ')}: ${countText(down * across, 'device')}`;
  return el('figure', { class: 'meshes' }, el('div', { class: 'scroll' }, el('table', { class: 'grid', 'aria-label': `mesh ${text}` }, el('thead', {}, head), el('tbody', {}, body))), el('figcaption', { class: 'quiet' }, text));
}

// All of so many places, or the first ones, a gap (null) and the last.
function shownPlaces(count, most) {
  if (count <= most) return Array.from({ length: count }, (_, n) => n);
  return [...Array.from({ length: most - 2 }, (_, n) => n), null, count - 1];
}

// One edge for each set of axes that devices exchange data along; meshes of more than three axes have sets without one.
function axesTint(axes, mesh) {
  const bits = axes.reduce((sum, axis) => sum + 2 ** Math.max(0, mesh.findIndex(([name]) => axis === name || axis.startsWith(`${name}:`))), 0);
  return `axes${Math.min(bits, 8)}`;
}

function axesBadge(axes, mesh) {
  return el('span', { class: `badge axes ${axesTint(axes, mesh)}` }, axes.join('+') || 'groups');
}

// The devices of each group along whole axes of the mesh; null for parts of axes, and for more devices than anybody reads.
function groupsAlong(axes, mesh, order) {
  const whole = mesh.filter(([axis]) => axes.includes(axis));
  if (!axes.length || whole.length !== axes.length || mesh.reduce((n, [, size]) => n * size, 1) > MOST_GROUPED) return null;
  const strides = mesh.map((_, n) => mesh.slice(n + 1).reduce((product, [, size]) => product * size, 1));
  const along = (wanted) => mesh.reduce((found, [axis, size], n) => (axes.includes(axis) === wanted ? found.flatMap((at) => Array.from({ length: size }, (_, k) => at + k * strides[n])) : found), [0]);
  const members = along(true);
  return along(false).map((first) => members.map((n) => (order ? order[first + n] : first + n)));
}

function groupsLegend(rows, mesh, order) {
  const seen = new Map(rows.map((row) => [row.axes.join('+'), row]));
  if (!seen.size) return null;
  return el('ul', { class: 'legend', 'aria-label': 'groups' }, [...seen.values()].map((row) => {
    const groups = groupsAlong(row.axes, mesh, order);
    const some = (list, most, text) => list.slice(0, most).map(text).join(', ') + (list.length > most ? ', …' : '');
    const told = groups ? `${countText(groups.length, 'group')} of ${countText(row.group_size, 'device')}: ${some(groups, 3, (group) => `{${some(group, 6, String)}}`)}` : `groups of ${countText(row.group_size, 'device')}`;
    return el('li', {}, axesBadge(row.axes, mesh), told);
  }));
}
