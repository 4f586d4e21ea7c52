// A variant: a mesh and annotations in a form, the job that makes its report, and what came of it.

// `given` is { label, mesh, annotations }; `settings()` what all variants share. Handlers: `starting()` before
// and `done()` after each run, and `buttons`, more of them for the card.
function variantCard(given, program, settings, handlers) {
  const variant = { ...given, mesh: given.mesh.map((row) => [...row]), annotations: given.annotations.map((row) => ({ ...row })), result: null, made: '' };
  const status = el('p', { class: 'quiet', role: 'status' });
  const faults = el('div');
  const run = el('button', { type: 'submit', class: 'main' });
  const cancel = el('button', { type: 'button', hidden: true, on: { click: () => work && work.abort() } }, 'Cancel');
  let work = null;
  let running = ''; // what `work` makes
  const annotations = annotationForm(variant.annotations, program.facts, axes, edited);
  const own = program.facts.devices > 1 ? `as in the program: ${countText(program.facts.devices, 'device')}` : 'no mesh: one device';
  const mesh = meshForm(variant.mesh, () => (annotations.refresh(), edited()), own);
  const form = el('form', { class: 'variant', novalidate: true, 'aria-label': `variant ${variant.label}`, on: { submit: (event) => (event.preventDefault(), handlers.starting(), start()) } },
    el('h3', {}, el('span', { class: 'label' }, variant.label)), el('div', { class: 'fields' }, mesh, annotations.element),
    el('div', { class: 'tools' }, run, cancel, handlers.buttons.map(([title, action]) => el('button', { type: 'button', on: { click: () => action(api) } }, title))), status, faults);

  // A mesh that names an axis of the program's own resizes that; one that names none of them stands in its place.
  function axes() {
    const [own, given] = [Object.keys(program.facts.mesh), Object.keys(meshOf(variant.mesh))];
    return given.length && !given.some((axis) => own.includes(axis)) ? given : [...new Set([...own, ...given])];
  }

  function order() {
    const { machine, remedies } = settings();
    return {
      kind: 'report', program: program.sha256, name: program.name, mesh: meshOf(variant.mesh), annotations: annotationsOf(variant.annotations),
      machine, remedies: remedies ? 3 : 0,
    };
  }

  function edited() {
    const stale = variant.result !== null && !fresh();
    run.textContent = variant.label === 'B' ? 'Compare' : variant.result === null ? 'Make the report' : 'Make the report again';
    form.classList.toggle('stale', stale);
    if (!work && variant.result) status.textContent = stale ? 'changed since its report was made' : doneText(variant.result.job);
  }

  async function start() {
    const wrong = [...meshFaults(variant.mesh), ...annotationFaults(variant.annotations)];
    faults.replaceChildren();
    annotations.mark(null);
    if (wrong.length) return append(faults, [el('ul', { class: 'problem', role: 'alert' }, wrong.map((text) => el('li', {}, text)))]);
    const asked = order();
    if (work && JSON.stringify(asked) === running) return; // it is being made
    if (work) work.abort();
    const mine = (work = new AbortController());
    running = JSON.stringify(asked);
    const focused = document.activeElement === run;
    cancel.hidden = false;
    run.disabled = true;
    try {
      const job = await carryOut(asked, (now) => (status.textContent = stateText(now)), mine.signal, program.bytes);
      const result = await resultOf(job, mine.signal);
      if (variant.result) URL.revokeObjectURL(variant.result.page);
      Object.assign(variant, { result, made: JSON.stringify(asked) });
    } catch (error) {
      if (work !== mine) return; // another has begun
      status.textContent = error.name === 'AbortError' ? 'cancelled' : '';
      append(faults, [problemView(error)]);
      annotations.mark(error);
    }
    work = null;
    cancel.hidden = true;
    run.disabled = false;
    if (focused && [document.body, run].includes(document.activeElement)) run.focus(); // which it lost as it was disabled
    if (faults.childElementCount === 0 && status.textContent !== 'cancelled') edited();
    handlers.done();
  }

  function end() {
    if (work) work.abort();
    work = null;
    if (variant.result) URL.revokeObjectURL(variant.result.page);
    form.remove();
  }

  const fresh = () => variant.result !== null && JSON.stringify(order()) === variant.made;
  const api = { variant, element: form, start, end, edited, fresh, focus: annotations.focus };
  edited();
  return api;
}

// The page (as an address in this tab's memory) and the figures of a job that is done.
async function resultOf(job, signal) {
  const named = new Set(job.entry.artifacts.map((artifact) => artifact.name));
  const read = (name) => (named.has(name) ? requestJson(artifactPath(job.entry, name), { signal }) : null);
  const [html, report, simulation] = await Promise.all([
    request(artifactPath(job.entry, 'report.html'), { signal }).then((response) => response.text()), read('report.json'), read('simulation.json'),
  ]);
  return { job, report, simulation, page: URL.createObjectURL(new Blob([html], { type: 'text/html' })) };
}

function doneText(job) {
  if (job.cached) return 'done: the service had it already';
  return job.finished > job.started && job.started ? `done in ${secondsText(job.finished - job.started)}` : 'done';
}
