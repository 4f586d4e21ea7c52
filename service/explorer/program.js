// The section where a program comes from: dropped, opened, pasted, or an example.

// `take(program, start)` gets { sha256, name, mesh, facts, bytes } of a program that the service has read, and what to begin with.
// `bytes` are null where it came by a link.
function programSection(section, take) {
  const file = el('input', { type: 'file', id: 'file', class: 'hidden', tabindex: '-1', 'aria-hidden': 'true', on: { change: () => file.files.length && openFile(file.files[0]) } });
  const text = el('textarea', { rows: '8', 'aria-label': 'text of the program', spellcheck: 'false', placeholder: 'HloModule step\n...' });
  const paste = el('div', { hidden: true }, text, el('div', { class: 'tools' }, el('button', { type: 'button', class: 'main', on: { click: () => openBytes(new Blob([text.value]), 'pasted', {}) } }, 'Take this text')));
  const status = el('p', { role: 'status', class: 'quiet' });
  const faults = el('div');
  const zone = el('div', { class: 'drop' },
    el('p', {}, 'Drop a program here: HLO text, StableHLO as text or bytecode, or a serialized jax.export.Exported.'),
    el('div', { class: 'tools' },
      el('button', { type: 'button', class: 'main', on: { click: () => file.click() } }, 'Open a file'),
      el('button', { type: 'button', on: { click: () => ((paste.hidden = !paste.hidden), paste.hidden || text.focus()) } }, 'Paste text'),
      EXAMPLES.map((example) => el('button', { type: 'button', on: { click: () => openExample(example) } }, example.title))),
    file, paste);
  section.append(zone, status, faults);
  let work = new AbortController();
  let told = []; // of the program that is there

  for (const kind of ['dragenter', 'dragover']) {
    document.addEventListener(kind, (event) => {
      if (![...event.dataTransfer.types].includes('Files')) return;
      event.preventDefault();
      zone.classList.add('over');
    });
  }
  document.addEventListener('dragleave', (event) => event.relatedTarget || zone.classList.remove('over'));
  document.addEventListener('drop', (event) => {
    zone.classList.remove('over');
    if (!event.dataTransfer.files.length) return;
    event.preventDefault();
    openFile(event.dataTransfer.files[0]);
  });
  document.addEventListener('paste', (event) => {
    if (event.target.closest('input, textarea') || !event.clipboardData.files.length) return;
    openFile(event.clipboardData.files[0]);
  });

  function openFile(found) {
    openBytes(found, [...found.name.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, ' ')].slice(0, 200).join(''), {});
    file.value = ''; // the same file may be opened again, changed
  }

  async function openExample(example) {
    await doing(async (signal) => {
      const response = await request(`explorer/${example.file}`, { signal });
      return read(await response.blob(), example.file, signal, example.read);
    }, example);
  }

  function openBytes(bytes, name, start) {
    return doing((signal) => read(bytes, name, signal), start);
  }

  // One program at a time: what is being read is given up for the next.
  async function doing(action, start) {
    work.abort();
    work = new AbortController();
    const { signal } = work;
    faults.replaceChildren();
    try {
      const program = await action(signal);
      if (signal.aborted) return;
      told = summaryOf(program);
      status.replaceChildren(...told);
      paste.hidden = true;
      take(program, start);
    } catch (error) {
      if (signal.aborted) return;
      status.replaceChildren(...told);
      append(faults, [problemView(error)]);
    }
  }

  async function read(bytes, name, signal, mesh = {}) {
    if (!bytes.size) throw new Problem({ error: 'InputError', what: 'it is empty', where: name, fix: 'give a program' }, 0);
    status.textContent = `sending ${name}, ${bytesText(bytes.size)}`;
    const { program } = await upload(bytes, signal);
    return { ...(await readStored(program, name, signal, mesh)), bytes };
  }

  // `mesh` names the axes of programs that have tiles only; others name their own.
  async function readStored(sha256, name, signal, mesh) {
    const job = await carryOut({ kind: 'inspect', program: sha256, name, mesh }, (now) => (status.textContent = `reading ${name}: ${stateText(now)}`), signal);
    return { sha256, name, mesh, bytes: null, facts: await requestJson(artifactPath(job.entry, 'program.json'), { signal }) };
  }

  // A program that the service has already, from a link.
  function openStored(link, start) {
    return doing((signal) => readStored(link.program, link.name, signal, link.read), start);
  }

  return { openStored };
}

function summaryOf(program) {
  const { facts } = program;
  const mesh = Object.entries(facts.mesh).map(([axis, size]) => `${axis}=${size}`).join(', ');
  const about = [countText(facts.parameters.length, 'parameter'), countText(facts.results.length, 'result')];
  if (mesh || facts.devices > 1) about.push(`made for ${countText(facts.devices, 'device')}${mesh ? ` (${mesh})` : ''}`);
  if (program.bytes) about.push(bytesText(program.bytes.size));
  const came = facts.scheduled ? ' It is already partitioned and scheduled: annotations have no effect.' : facts.partitioned ? ' It is already partitioned: annotations have no effect.' : '';
  return [el('b', {}, facts.name), ` from ${program.name}: ${about.join(', ')}.${came}`];
}

function stateText(job) {
  if (job.away) return 'the service does not answer; trying again';
  if (job.state === 'queued') return job.position ? `number ${job.position} in the queue` : 'queued';
  if (job.state !== 'running') return job.state;
  const { stage, done, of } = job.progress || {};
  return `running${stage ? `: ${stage}` : ''}${of ? `, ${done} of ${of}` : ''}`;
}
