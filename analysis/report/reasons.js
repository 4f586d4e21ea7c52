// Why a collective is there: what moves, the chain from the annotations to it, the choice, and what would remove it.

function collectiveDetail(row, reason, strings) {
  const facts = [
    ['value', strings[row.value]], ['operation', strings[row.op_name]], ['instruction', row.name], ['source', strings[row.source]],
    ['algorithm', row.algorithm], ['one execution moves', bytesText(row.payload_bytes)],
  ];
  if (reason) facts.push(['layout before', reason.before], ['layout after', reason.after]);
  if (reason && reason.names.length > 1) facts.push(['the same reason for', `${reason.names.length} collectives, ${bytesText(reason.wire_bytes)} together`]);
  return el('div', { class: 'reason' }, factList(facts), reason ? explained(reason) : plainReason(strings[row.reason]));
}

function factList(facts) {
  return el('dl', { class: 'facts' }, facts.filter((fact) => fact[1]).map(([title, value]) => [el('dt', {}, title), el('dd', {}, value)]));
}

function plainReason(text) {
  return el('p', {}, text ? `because ${text}` : 'no reason is recorded');
}

function explained(reason) {
  return [
    reason.reason ? el('p', {}, `because ${reason.reason}`) : null,
    reason.conflict ? el('p', {}, el('b', {}, 'Conflict: '), reason.conflict) : null,
    reason.parties.map(partyView),
    reason.choice ? choiceView(reason.choice) : null,
    el('h4', {}, 'What would remove it'),
    reason.remedies.length ? reason.remedies.map(remedyView) : el('p', {}, reason.why_none || 'no annotation was tried: use --remedies, or shardc explain'),
  ];
}

function partyView(party) {
  const axes = party.axes.length ? ` by ${party.axes.join(', ')}` : '';
  const role = { moved: 'moved', against: 'conflicting', reduced: 'summed' }[party.role] || party.role;
  const title = `${role}: ${party.tensor}, dimension ${party.dimension}${axes}${party.factor ? ` (factor ${party.factor})` : ''}`;
  return el('div', { class: 'party' }, el('h4', {}, title), party.chain.length ? el('ol', {}, party.chain.map(linkView)) : null);
}

function linkView(link) {
  const what = `${link.value}, dimension ${link.dimension}, has ${link.axes.join(', ') || 'no axes'}`;
  const how = link.kind === 'annotation' || !link.source ? ` (${link.kind})`
    : ` from ${link.source}, dimension ${link.source_dimension}${link.via ? ` through ${link.via}` : ''}${link.rule ? ` by ${link.rule}` : ''}${link.factor ? `, factor ${link.factor}` : ''}`;
  return el('li', {}, what, el('span', { class: 'quiet' }, how, ' '), sourceText(link.line));
}

function costText(cost, unit) {
  return unit === 's' ? secondsText(cost) : bytesText(cost);
}

function choiceView(choice) {
  const rows = [{ factors: choice.factors, cost: choice.cost, unit: choice.unit, collectives: '', work: 1, taken: true }, ...choice.alternatives];
  return el('div', {}, el('h4', {}, `The choice at ${choice.operation} (${choice.opcode})`),
    choice.regional ? el('p', {}, choice.regional) : null,
    el('div', { class: 'scroll' }, el('table', {},
      el('thead', {}, el('tr', {}, ['split by', 'cost', 'collectives', 'work', ''].map((t) => el('th', { scope: 'col' }, t)))),
      el('tbody', {}, rows.map((r) => el('tr', {}, el('td', {}, r.factors || 'nothing'), el('td', { class: 'number' }, costText(r.cost, r.unit)),
        el('td', { class: 'number' }, String(r.collectives)), el('td', { class: 'number' }, `${digits(r.work)}×`), el('td', {}, r.taken ? 'taken' : '')))))));
}

function remedyView(remedy) {
  const gain = [];
  if (remedy.saved_bytes > 0) gain.push(`${bytesText(remedy.saved_bytes)} less sent`);
  if (remedy.saved_seconds > 0) gain.push(`${secondsText(remedy.saved_seconds)} faster`);
  return el('div', { class: 'remedy' }, el('p', {}, el('b', {}, remedy.what), gain.length ? ` (tried: ${gain.join(', ')})` : '', remedy.removes ? '' : '; the collective stays, but becomes cheaper',
    remedy.costs ? `; ${remedy.costs}` : ''),
    el('ul', {}, remedy.changes.map((change) => el('li', {}, el('code', {}, annotateOption(change)), el('span', { class: 'quiet' }, change.before ? ` now ${change.before}` : '')))));
}

// For a shell: in single quotes, or double ones around names such as params['w'].
function annotateOption(change) {
  const quote = change.name.includes("'") ? '"' : "'";
  return `--annotate ${quote}${change.name}=${change.spec}${quote}`;
}

function warningView(warning, openCollective) {
  const numbers = Object.entries(warning.numbers).map(([name, n]) => `${name.replaceAll('_', ' ')} ${/bytes/.test(name) ? bytesText(n) : /share/.test(name) ? percent(n) : /seconds/.test(name) ? secondsText(n) : /flops/.test(name) ? flopsText(n) : digits(n)}`);
  const remedy = warning.way_out.remedy;
  return el('li', { class: 'warning' }, el('p', {}, el('b', {}, warning.text), ' ', sourceText(warning.line)),
    numbers.length ? el('p', { class: 'quiet' }, numbers.join(', ')) : null,
    warning.way_out.text ? el('p', {}, warning.way_out.text) : null, remedy ? remedyView(remedy) : null,
    warning.collectives.length ? el('p', {}, warning.collectives.slice(0, 5).map((name) => [
      el('button', { type: 'button', class: 'link', on: { click: () => openCollective(name) } }, name), ' '])) : null);
}
