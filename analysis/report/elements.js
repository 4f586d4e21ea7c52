// Making elements, and numbers with units. Text only ever becomes text nodes.

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === 'on') {
      for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
    } else if (value === true) {
      node.setAttribute(name, '');
    } else if (value !== false && value !== null && value !== undefined) {
      node.setAttribute(name, value);
    }
  }
  append(node, children);
  return node;
}

function append(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== '') node.append(child);
  }
}

// "1.5 KiB"
function bytesText(n) {
  for (const unit of ['B', 'KiB', 'MiB', 'GiB']) {
    if (n < 1024) return `${unit === 'B' ? Math.round(n) : n.toFixed(1)} ${unit}`;
    n /= 1024;
  }
  return `${n.toFixed(1)} TiB`;
}

// Rates count by thousands, as data sheets have them.
function bandwidthText(n) {
  for (const unit of ['B', 'kB', 'MB', 'GB']) {
    if (n < 1000) return `${digits(n)} ${unit}/s`;
    n /= 1000;
  }
  return `${digits(n)} TB/s`;
}

// Three digits, never as a power of ten.
function digits(n) {
  return n >= 1000 ? n.toFixed(0) : String(Number(n.toPrecision(3)));
}

function secondsText(s) {
  if (s === null || s === undefined) return '';
  if (s === 0) return '0';
  if (s < 1e-3) return `${digits(s * 1e6)} us`;
  if (s < 1) return `${digits(s * 1e3)} ms`;
  return `${digits(s)} s`;
}

function flopsText(n) {
  for (const unit of ['', 'k', 'M', 'G', 'T', 'P']) {
    if (n < 1000) return `${digits(n)} ${unit}flop`;
    n /= 1000;
  }
  return `${digits(n)} Eflop`;
}

function percent(share) {
  if (share > 0 && share < 1e-4) return '<0.01%';
  return `${Number((100 * share).toPrecision(3))}%`;
}

function countText(n, one, many) {
  return `${n.toLocaleString('en')} ${n === 1 ? one : many || `${one}s`}`;
}

// "model.py:12" of "/home/me/model.py:12"
function shortSource(source) {
  return source.slice(Math.max(source.lastIndexOf('/'), source.lastIndexOf('\\')) + 1);
}

function sourceText(source) {
  return source ? el('span', { class: 'source', title: source }, shortSource(source)) : null;
}

function lastScope(opName) {
  return opName.slice(opName.lastIndexOf('/') + 1);
}

// What a style variable is now, for canvases.
function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// A canvas as wide as its box and `height` pixels high, sharp on any screen; `draw(context, width, height)` is called
// whenever the size or the colours change. Returns the element and a function that draws again.
function canvasBox(height, attributes, draw) {
  const canvas = el('canvas', attributes);
  const box = el('div', { class: 'canvas' }, canvas);
  let planned = false;
  function now() {
    planned = false;
    const width = box.clientWidth;
    if (!width) return;
    const scale = window.devicePixelRatio || 1;
    const high = typeof height === 'function' ? height(width) : height;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(high * scale);
    canvas.style.height = `${high}px`;
    const context = canvas.getContext('2d');
    context.scale(scale, scale);
    context.clearRect(0, 0, width, high);
    context.font = '12px system-ui, sans-serif';
    draw(context, width, high);
  }
  function later() {
    if (!planned) {
      planned = true;
      requestAnimationFrame(now);
    }
  }
  new ResizeObserver(later).observe(box);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', later);
  return { box, canvas, redraw: later };
}

// Text cut to `room` pixels, empty where not even six letters fit.
function fitted(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  const letters = Math.floor(room / (context.measureText('n').width || 7)) - 1;
  return letters >= 6 ? `${text.slice(0, letters)}…` : '';
}
