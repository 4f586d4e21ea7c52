// What would remove the most costly collectives: changes of annotations that the service has tried, to be tried here.

const REMEDIES = 3; // collectives to look for remedies of

// `take(changes)` hears which of them somebody wants to see.
async function lookForRemedies(order, show, signal, bytes, take) {
  const { program, name, mesh, annotations, machine } = order;
  const job = await carryOut({ kind: 'explain', program, name, mesh, annotations, machine, remedies: REMEDIES }, show, signal, bytes);
  const { collectives } = await requestJson(artifactPath(job.entry, 'explanation.json'), { signal });
  return remediesView(collectives, take);
}

function remediesView(collectives, take) {
  const asked = collectives.slice(0, REMEDIES);
  if (!asked.length) return el('p', { class: 'quiet' }, 'No device sends anything: there is nothing to remove.');
  return el('ul', { class: 'remedies' }, asked.map((reason) => el('li', {},
    el('p', {}, operationBadge(reason.op), ` of ${reason.value || reason.names[0]}${reason.names.length > 1 ? ` and ${reason.names.length - 1} like it` : ''}, ${costOf(reason)}: `, el('span', { class: 'quiet' }, reason.remedies.length ? reason.reason : reason.why_none)),
    reason.remedies.length ? el('ul', {}, reason.remedies.map((remedy) => remedyRow(remedy, take))) : null)));
}

function costOf(reason) {
  return reason.seconds === null ? bytesText(reason.wire_bytes) : secondsText(reason.seconds);
}

function remedyRow(remedy, take) {
  const { before, after } = remedy;
  const gain = before.seconds === null ? `${bytesText(before.wire_bytes - after.wire_bytes)} less sent` : `${secondsText(before.seconds - after.seconds)} less in a step`;
  return el('li', {}, `${remedy.what}: ${gain}${remedy.removes ? '' : '; the collective stays, but becomes cheaper'}${remedy.costs ? `; ${remedy.costs}` : ''} `,
    el('button', { type: 'button', 'aria-label': `Try: ${remedy.what}`, on: { click: () => take(remedy.changes) } }, 'Try'));
}

// Annotations with some changed: in their row, or behind the others, where they win over patterns.
function withChanges(rows, changes) {
  const names = changes.map((change) => change.name);
  return [...rows.filter((row) => !names.includes(row.name)), ...changes.map(({ name, spec }) => ({ name, spec }))];
}
