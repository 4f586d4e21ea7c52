// The service's HTTP interface: requests with the token, errors as problems, jobs watched until they are over.

const TOKEN = 'shardc-token'; // in the storage of this tab, gone with it
const PATIENCE = 60_000; // milliseconds that a service may be away while a job is watched

// What went wrong, with the fields of the library's own errors.
class Problem extends Error {
  constructor(fields, status) {
    super(fields.what || fields.detail || fields.title || `the service answered with status ${status}`);
    this.kind = fields.error || 'RunError';
    this.where = fields.where || null;
    this.fix = fields.fix || null;
    this.status = status;
    this.missing = fields.missing || [];
  }
}

function isAway(error) {
  return error instanceof Problem && [0, 502, 503, 504].includes(error.status);
}

function isOver(job) {
  return ['done', 'failed', 'cancelled'].includes(job.state);
}

// The response, if it is a good one. Where a token is wanted the document hears of it, as the event "refused".
async function request(path, options = {}) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  let response;
  try {
    response = await fetch(path, { cache: 'default', credentials: 'omit', ...options, headers });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Problem({ error: 'EnvironmentProblem', what: 'the service does not answer', fix: 'check that "shardc serve" runs, and that it served this page' }, 0);
  }
  if (response.ok) return response;
  const problem = await problemOf(response);
  if (response.status === 401) document.dispatchEvent(new CustomEvent('refused', { detail: problem }));
  throw problem;
}

async function problemOf(response) {
  let fields = {};
  try {
    fields = await response.json();
  } catch {
    // a proxy's page, say: the status tells what there is to tell
  }
  return new Problem(fields && typeof fields === 'object' ? fields : {}, response.status);
}

async function requestJson(path, options) {
  return (await request(path, options)).json();
}

// The program's digest, once the service has it.
async function upload(bytes, signal) {
  return requestJson('v1/programs', { method: 'POST', body: bytes, headers: { 'Content-Type': 'application/octet-stream' }, signal });
}

// The job of an order, when it is done; `show(job)` hears of every change. Failed and cancelled ones throw, and a job
// that nobody wants any more (`signal`) is cancelled. A service that has forgotten the program gets its `bytes` again.
async function carryOut(order, show, signal, bytes = null) {
  let job;
  try {
    job = await submit(order, signal);
  } catch (error) {
    if (bytes === null || error.status !== 404 || !error.missing.includes(order.program)) throw error;
    await upload(bytes, signal);
    job = await submit(order, signal);
  }
  show(job);
  try {
    job = await watch(job, show, signal);
  } catch (error) {
    if (error.name === 'AbortError') request(`v1/jobs/${job.id}`, { method: 'DELETE', keepalive: true }).catch(() => {});
    throw error;
  }
  if (job.state === 'failed') throw new Problem(job.problem || {}, 200);
  if (job.state === 'cancelled') throw new Problem({ what: 'the job was cancelled' }, 200);
  return job;
}

function submit(order, signal) {
  return requestJson('v1/jobs', { method: 'POST', body: JSON.stringify(order), headers: { 'Content-Type': 'application/json' }, signal });
}

async function watch(job, show, signal) {
  let heard = Date.now();
  while (!isOver(job)) {
    try {
      for await (const told of jobEvents(job.id, signal)) {
        heard = Date.now();
        show((job = told));
      }
      if (!isOver(job)) show((job = await requestJson(`v1/jobs/${job.id}`, { signal })));
      heard = Date.now();
    } catch (error) {
      if (!isAway(error) || Date.now() - heard > PATIENCE) throw error;
      show({ ...job, away: true });
    }
    if (!isOver(job)) await pause(1000, signal);
  }
  return job;
}

// Jobs as the service sends them (server-sent events; an EventSource could not carry the token).
async function* jobEvents(id, signal) {
  const response = await request(`v1/jobs/${id}/events`, { headers: { Accept: 'text/event-stream' }, cache: 'no-store', signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (;;) {
    const { value, done } = await reader.read().catch((error) => {
      if (signal.aborted) throw error;
      return { done: true }; // the connection broke: the caller asks again
    });
    if (done) return;
    text += value.replaceAll('\r', '');
    const blocks = text.split('\n\n');
    text = blocks.pop();
    for (const block of blocks) {
      const lines = block.split('\n');
      const data = lines.filter((line) => line.startsWith('data:')).map((line) => line.slice(5).trimStart());
      if (data.length && lines.some((line) => /^event: ?job$/.test(line))) yield JSON.parse(data.join('\n'));
    }
  }
}

function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const stop = () => (clearTimeout(timer), reject(signal.reason));
    const timer = setTimeout(() => (signal.removeEventListener('abort', stop), resolve()), milliseconds);
    if (signal.aborted) stop();
    signal.addEventListener('abort', stop, { once: true });
  });
}

function artifactPath(entry, name) {
  return `v1/artifacts/${entry.key}/${name}`;
}
