// Annotations that the service finds for a program: what each is for, what a step takes with them, and code to paste.

// `take(changes, mesh)` hears when somebody wants to see them beside the variant; `wider(devices)` asks for other meshes.
async function lookForAnnotations(order, show, signal, bytes, take, wider) {
  const job = await carryOut({ kind: 'auto', ...order }, show, signal, bytes);
  return foundView(await requestJson(artifactPath(job.entry, 'plan.json'), { signal }), take, wider);
}

function foundView(plan, take, wider) {
  const changes = plan.specs.flatMap((spec) => spec.names.map((name) => ({ name, spec: spec.annotation })));
  const mesh = Object.entries(plan.mesh).map(([axis, size]) => [axis, String(size)]);
  const room = `${bytesText(plan.peak_bytes)} of ${bytesText(plan.memory_bytes)} of memory`;
  const told = `Over ${meshText(plan.mesh)} a step takes ${secondsText(plan.step_seconds)} and needs ${room}. With the present annotations it takes ${secondsText(plan.given.step_seconds)} and needs ${bytesText(plan.given.peak_bytes)}.`;
  const tryIt = el('button', { type: 'button', on: { click: () => take(changes, mesh) } }, 'Try these annotations');
  const others = plan.meshes.length > 1 || plan.devices < 2 ? null : el('button', { type: 'button', on: { click: () => wider(plan.devices) } }, `Find over other meshes of ${plan.devices.toLocaleString('en')} devices`);
  return el('div', { class: 'found' }, el('p', {}, told), plan.specs.length ? specTable(plan.specs) : el('p', {}, 'No annotations were found that make the step more than 1 % shorter.'), el('div', { class: 'tools' }, plan.specs.length ? tryIt : null, others),
    meshTable(plan.meshes), plan.specs.length ? [codeView('As JAX code', plan.jax), codeView('As a file for --annotations', plan.toml)] : null);
}

function meshText(mesh) {
  return Object.entries(mesh).map(([axis, size]) => `${axis}=${size}`).join(', ');
}

function specTable(specs) {
  return scrollTable('annotations that were found', ['what', 'spec', 'why'], specs.map((spec) => [
    el('span', {}, spec.names.join(', '), spec.place ? [' ', sourceText(spec.place)] : null), el('code', {}, spec.annotation), spec.reason]));
}

// Meshes that were weighed; those without a step were left out by models.
function meshTable(meshes) {
  if (meshes.length < 2) return null;
  const rows = meshes.map((tried) => [meshText(tried.mesh), tried.reason || secondsText(tried.modelled), secondsText(tried.step_seconds), tried.peak_bytes === null ? '' : bytesText(tried.peak_bytes)]);
  return el('details', {}, el('summary', {}, `${countText(meshes.length, 'mesh', 'meshes')} compared`), scrollTable('meshes that were compared', ['mesh', 'modelled', 'step', 'memory'], rows));
}

function scrollTable(label, titles, rows) {
  return el('div', { class: 'scroll' }, el('table', { 'aria-label': label }, el('thead', {}, el('tr', {}, titles.map((title) => el('th', { scope: 'col' }, title)))),
    el('tbody', {}, rows.map((cells) => el('tr', {}, cells.map((cell) => el('td', {}, cell)))))));
}

function codeView(title, code) {
  return el('details', {}, el('summary', {}, title), el('pre', { tabindex: '0' }, code));
}
