// Why a section has nothing to show; null where it has something.

const NO_MACHINE = 'No machine was named, so no times are known. Add --machine h100-dgx, or another machine, to simulate a step.';
const ONE_DEVICE = 'The program runs on one device: no data moves between devices.';
const NO_COLLECTIVES = 'The program has no collectives: no data moves between devices.';

function missing(text) {
  return el('p', { class: 'missing' }, text);
}

function collectivesMissing(data) {
  if (data.collectives.length) return null;
  return missing(data.devices === 1 ? ONE_DEVICE : NO_COLLECTIVES);
}

function graphMissing(data) {
  return data.graph.nodes.length ? null : missing('The program has no operations.');
}

function timelineMissing(data) {
  if (!data.timeline) return missing(NO_MACHINE);
  return data.timeline.events.length ? null : missing('Nothing runs: the program has no kernels and no collectives.');
}

function memoryMissing(data) {
  return data.memory ? null : missing('The memory over the program is not known: shardc cannot compile one of its operations for this computer.');
}

// Links between host and device carry data on one device too.
function trafficMissing(data) {
  if (data.devices === 1 && !data.totals.links?.length) return missing(ONE_DEVICE);
  if (!data.traffic) return missing(data.collectives.length ? NO_MACHINE : NO_COLLECTIVES);
  if (data.traffic.cells.length) return null;
  const text = missing(data.devices === 1 ? ONE_DEVICE : NO_COLLECTIVES);
  return data.totals.links.length ? [text, linksView(data.totals.links)] : text;
}

function rooflineMissing(data) {
  if (data.timeline && data.totals.bandwidth) return null;
  return [el('h3', {}, 'Roofline'), missing(NO_MACHINE)];
}
