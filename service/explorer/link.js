// What the page shows, in its address: a link shows a colleague the same, as long as the service has the program.

function linkOf(program, machine, variants) {
  const parts = new URLSearchParams({ program: program.sha256, name: program.name, machine, read: JSON.stringify(program.mesh) });
  for (const { label, mesh, annotations } of variants) parts.set(label, JSON.stringify({ mesh, annotations }));
  return `#${parts}`;
}

// { program, name, read (the mesh that it was read over), machine, variants }, or null for an address that says something else.
function readLink(text) {
  const parts = new URLSearchParams(text.replace(/^#/, ''));
  const program = parts.get('program') || '';
  const variants = ['A', 'B'].map((label) => readVariant(parts.get(label))).filter(Boolean);
  if (!/^[0-9a-f]{64}$/.test(program) || !variants.length) return null;
  return { program, name: parts.get('name') || 'program', read: readMesh(parts.get('read')), machine: parts.get('machine') || '', variants };
}

function readMesh(text) {
  try {
    return Object.fromEntries(Object.entries(JSON.parse(text)).map(([axis, size]) => [axis, Number(size)]));
  } catch {
    return {};
  }
}

function readVariant(text) {
  try {
    const { mesh, annotations } = JSON.parse(text);
    return {
      mesh: mesh.map(([axis, size]) => [String(axis), String(size)]),
      annotations: annotations.map(({ name, spec }) => ({ name: String(name), spec: String(spec) })),
    };
  } catch {
    return null; // somebody's own words: the page begins without
  }
}
