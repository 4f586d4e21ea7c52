// A variant: a mesh and annotations in a form, the job that makes its report, and what came of it.

// `given` is { label, mesh, annotations }, `machine()` what all variants share. Handlers: `starting()` before a report is
// made and `done()` after, `take(card, changes, mesh)` for annotations to be tried, and `buttons`, more of them for the card.
function variantCard(given, program, machine, handlers) {
  const variant = { ...given, mesh: given.mesh.map((row) => [...row]), annotations: given.annotations.map((row) => ({ ...row })), result: null, made: '' };
  const status = el('p', { class: 'quiet', role: 'status' });
  const faults = el('div');
  const advice = el('div');
  const run = el('button', { type: 'submit', class: 'main' });
  const cancel = el('button', { type: 'button', hidden: true, on: { click: () => work && work.abort() } }, 'Cancel');
  let work = null;
  let working = ''; // what `work` is about
  let advised = ''; // what `advice` is about
  const annotations = annotationForm(variant.annotations, program.facts, axes, edited);
  const own = program.facts.devices > 1 ? `as in the program: ${countText(program.facts.devices, 'device')}` : 'no mesh: one device';
  const mesh = meshForm(variant.mesh, () => (annotations.refresh(), edited()), own);
  const form = el('form', { class: 'variant', novalidate: true, 'aria-label': `variant ${variant.label}`, on: { submit: (event) => (event.preventDefault(), start()) } },
    el('h3', {}, el('span', { class: 'label' }, variant.label)), el('div', { class: 'fields' }, mesh, annotations.element),
    el('div', { class: 'tools' }, run, cancel, handlers.buttons.map(([title, action]) => el('button', { type: 'button', on: { click: () => action(api) } }, title))), status, faults, advice);

  // A mesh that names an axis of the program's own resizes that; one that names none of them stands in its place.
  function axes() {
    const [own, given] = [Object.keys(program.facts.mesh), Object.keys(meshOf(variant.mesh))];
    return given.length && !given.some((axis) => own.includes(axis)) ? given : [...new Set([...own, ...given])];
  }

  function order() {
    return { program: program.sha256, name: program.name, mesh: meshOf(variant.mesh), annotations: annotationsOf(variant.annotations), machine: machine() };
  }

  function edited() {
    const stale = variant.result !== null && !fresh();
    run.textContent = variant.label === 'B' ? 'Compare' : variant.result === null ? 'Make the report' : 'Make the report again';
    form.classList.toggle('stale', stale);
    if (JSON.stringify(order()) !== advised) advice.replaceChildren();
    if (!work && variant.result) status.textContent = stale ? 'changed since its report was made' : doneText(variant.result.job);
  }

  function complete() {
    const wrong = [...meshFaults(variant.mesh), ...annotationFaults(variant.annotations)];
    faults.replaceChildren(...(wrong.length ? [el('ul', { class: 'problem', role: 'alert' }, wrong.map((text) => el('li', {}, text)))] : []));
    annotations.mark(null);
    return wrong.length === 0;
  }

  // One piece of work at a time: what is being done gives way, unless it is the same. What `action` returns is called
  // when it is over, if it was wanted until then.
  async function doing(what, action) {
    if (work && what === working) return;
    if (work) work.abort();
    const mine = (work = new AbortController());
    working = what;
    const focused = document.activeElement;
    cancel.hidden = false;
    run.disabled = true;
    let end = () => {};
    try {
      end = await action((now) => (status.textContent = stateText(now)), mine.signal);
    } catch (error) {
      if (work !== mine) return;
      end = () => tell(error);
    }
    if (work !== mine) return;
    work = null;
    cancel.hidden = true;
    run.disabled = false;
    if ([document.body, run].includes(document.activeElement) && form.contains(focused)) focused.focus(); // lost as it was disabled
    end();
  }

  function tell(error) {
    status.textContent = error.name === 'AbortError' ? 'cancelled' : '';
    append(faults, [problemView(error)]);
    annotations.mark(error);
  }

  function start() {
    if (!complete()) return;
    handlers.starting();
    const asked = order();
    doing(`report ${JSON.stringify(asked)}`, async (show, signal) => {
      const job = await carryOut({ kind: 'report', ...asked }, show, signal, program.bytes);
      const result = await resultOf(job, signal);
      return () => {
        if (variant.result) URL.revokeObjectURL(variant.result.page);
        Object.assign(variant, { result, made: JSON.stringify(asked) });
        edited();
        handlers.done();
      };
    });
  }

  function advise() {
    if (!complete()) return;
    const asked = order();
    doing(`advice ${JSON.stringify(asked)}`, async (show, signal) => {
      const view = await lookForRemedies(asked, show, signal, program.bytes, (changes) => handlers.take(api, changes));
      return () => {
        advice.replaceChildren(view);
        advised = JSON.stringify(asked);
        status.textContent = 'looked for remedies';
        edited();
      };
    });
  }

  // Over the mesh of the form, or over any of so many `devices`.
  function find(devices = 0) {
    if (!complete()) return;
    const asked = order();
    if (!asked.machine) {
      faults.replaceChildren(el('p', { class: 'problem', role: 'alert' }, 'The search minimises the step time on a machine: choose a machine above.'));
      return;
    }
    doing(`annotations ${devices} ${JSON.stringify(asked)}`, async (show, signal) => {
      const wanted = devices ? { ...asked, devices } : asked;
      const view = await lookForAnnotations(wanted, show, signal, program.bytes, (changes, rows) => handlers.take(api, changes, rows), find);
      return () => {
        advice.replaceChildren(view);
        advised = JSON.stringify(asked);
        status.textContent = 'found annotations';
        edited();
      };
    });
  }

  function end() {
    if (work) work.abort();
    work = null;
    if (variant.result) URL.revokeObjectURL(variant.result.page);
    form.remove();
  }

  const fresh = () => variant.result !== null && JSON.stringify(order()) === variant.made;
  const api = { variant, element: form, start, advise, find, end, edited, fresh, focus: annotations.focus };
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
  if (job.cached) return 'done: the service had already stored the result';
  return job.finished > job.started && job.started ? `done in ${secondsText(job.finished - job.started)}` : 'done';
}
