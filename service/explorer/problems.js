// Errors as the command line tells them: what, where, and what to do.

function problemView(error) {
  if (error.name === 'AbortError') return null;
  const known = error instanceof Problem;
  return el('div', { class: 'problem', role: 'alert' },
    el('p', {}, el('b', {}, known ? kindText(error.kind) : 'The page'), `: ${error.message}`),
    known && error.where ? el('p', {}, el('span', { class: 'quiet' }, 'where '), el('code', {}, error.where)) : null,
    known && error.fix ? el('p', {}, el('span', { class: 'quiet' }, 'what to do '), error.fix) : null);
}

const KINDS = {
  AnnotationError: 'Annotation', InputError: 'Input', ParseError: 'Not readable', UnsupportedError: 'Not supported',
  EnvironmentProblem: 'Environment', RunError: 'Failed', VerificationError: 'Verification',
};

function kindText(kind) {
  return KINDS[kind] || 'Error';
}
