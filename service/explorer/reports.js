// The reports: one, or two beside each other, each in a frame that may touch nothing of this page.

function reportsSection(section) {
  const chosen = { side: 'both' };
  const choices = ['both', 'A', 'B'].map((side) => el('button', { type: 'button', 'aria-pressed': String(side === 'both'), on: { click: () => choose(side) } }, side === 'both' ? 'Both' : `Only ${side}`));
  const tools = el('div', { class: 'tools', role: 'group', 'aria-label': 'reports shown' }, choices);
  const row = el('div', { class: 'reports' });
  section.append(tools, row);

  function choose(side) {
    chosen.side = side;
    choices.forEach((button, n) => button.setAttribute('aria-pressed', String(['both', 'A', 'B'][n] === side)));
    arrange();
  }

  function arrange() {
    const single = row.childElementCount < 2;
    tools.hidden = single;
    for (const figure of row.children) figure.hidden = !single && chosen.side !== 'both' && figure.dataset.side !== chosen.side;
  }

  // A frame whose page did not change stays as it is, scrolled and opened where the reader left it.
  function show(variants) {
    const there = new Map([...row.children].map((figure) => [figure.dataset.page, figure]));
    const wanted = variants.map((variant) => {
      const figure = there.get(variant.result.page) || reportFigure(variant);
      figure.dataset.side = variant.label;
      figure.querySelector('.label').textContent = variant.label;
      figure.querySelector('iframe').title = `report of variant ${variant.label}`;
      for (const button of figure.querySelectorAll('figcaption button')) button.setAttribute('aria-label', `save ${button.textContent} of variant ${variant.label}`);
      return figure;
    });
    for (const figure of [...row.children]) if (!wanted.includes(figure)) figure.remove();
    for (const figure of wanted) if (!figure.isConnected) row.append(figure);
    section.hidden = variants.length === 0;
    arrange();
  }

  return { show };
}

// `show` labels it.
function reportFigure({ result }) {
  const frame = el('iframe', { src: result.page, sandbox: 'allow-scripts', referrerpolicy: 'no-referrer' });
  const faults = el('div');
  const files = result.job.entry.artifacts.map((artifact) => el('button', { type: 'button', class: 'link', title: bytesText(artifact.bytes), on: { click: async () => {
    faults.replaceChildren();
    await save(result.job.entry, artifact.name).catch((error) => append(faults, [problemView(error)]));
  } } }, artifact.name));
  return el('figure', { 'data-page': result.page },
    el('figcaption', {}, el('span', { class: 'label' }), el('span', { class: 'quiet' }, 'save'), files), faults, frame);
}

async function save(entry, name) {
  const address = URL.createObjectURL(await (await request(artifactPath(entry, name))).blob());
  el('a', { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000); // by then the browser has it
}
