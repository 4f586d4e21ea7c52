// Places for the items of a graph: layers from top to bottom along the edges, items of a layer in the order of their neighbours.

const NODE = { width: 168, height: 44, across: 26, down: 58 };

// items: in program order; edges: [from, to] of items. Edges against the order (of loops, of scopes that alternate) count
// as back edges and move nothing. Returns { places: [{ x, y }], width, height, back: set of edge indices, ports: per edge }.
function placeGraph(count, edges) {
  const back = new Set();
  const layer = new Array(count).fill(0);
  const into = Array.from({ length: count }, () => []);
  const out = Array.from({ length: count }, () => []);
  edges.forEach(([from, to], n) => {
    if (from >= to) back.add(n);
    else {
      into[to].push(from);
      out[from].push(to);
    }
  });
  for (let n = 0; n < count; n++) for (const from of into[n]) layer[n] = Math.max(layer[n], layer[from] + 1);
  // What nothing of this view feeds stands right above its first reader.
  for (let n = count - 1; n >= 0; n--) if (!into[n].length && out[n].length) layer[n] = Math.min(...out[n].map((to) => layer[to])) - 1;
  const layers = [];
  layer.forEach((row, n) => (layers[row] = layers[row] || []).push(n));
  const rows = layers.filter(Boolean);
  const at = new Array(count).fill(0);
  rows.forEach((row) => row.forEach((n, k) => (at[n] = k - (row.length - 1) / 2)));
  for (let round = 0; round < 8; round++) {
    const near = round % 2 ? out : into;
    for (const row of round % 2 ? [...rows].reverse() : rows) {
      const wish = new Map(row.map((n) => [n, near[n].length ? near[n].reduce((sum, m) => sum + at[m], 0) / near[n].length : at[n]]));
      row.sort((a, b) => wish.get(a) - wish.get(b) || a - b);
      const middle = row.reduce((sum, n) => sum + wish.get(n), 0) / row.length;
      row.forEach((n, k) => (at[n] = middle + k - (row.length - 1) / 2));
    }
  }
  const first = Math.min(...at, 0);
  const last = Math.max(...at, 0);
  const places = new Array(count);
  rows.forEach((row, y) => row.forEach((n) => (places[n] = { x: 12 + (at[n] - first) * (NODE.width + NODE.across), y: 12 + y * (NODE.height + NODE.down) })));
  return { places, back, ports: portsOf(edges, back, places), width: 24 + NODE.width + (last - first) * (NODE.width + NODE.across), height: 24 + rows.length * (NODE.height + NODE.down) - NODE.down };
}

// Edges leave and arrive side by side, in the order of their other ends: { from, to (x), turn (how many leave before it) }.
function portsOf(edges, back, places) {
  const ports = edges.map(() => ({ from: 0, to: 0, turn: 0 }));
  const spread = (end, other, key) => {
    const groups = new Map();
    edges.forEach((edge, n) => back.has(n) || groups.set(edge[end], [...(groups.get(edge[end]) || []), n]));
    for (const [item, found] of groups) {
      found.sort((a, b) => places[edges[a][other]].x - places[edges[b][other]].x || places[edges[b][other]].y - places[edges[a][other]].y);
      found.forEach((n, k) => {
        ports[n][key] = places[item].x + (NODE.width * (k + 1)) / (found.length + 1);
        if (key === 'from') ports[n].turn = k;
      });
    }
  };
  spread(0, 1, 'from');
  spread(1, 0, 'to');
  return ports;
}
