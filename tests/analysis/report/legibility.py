"""What a reader needs of a page, measured in a browser: text that is whole, apart from other text, and dark enough."""

from __future__ import annotations

from typing import Any

from tests.analysis.report.browser import Tab

__all__ = ["cut_text", "equal_labels", "equal_rows", "low_contrast", "overlapping_text"]

#: Leaves of text that are seen: elements with text of their own, and their rectangles.
_SEEN = """
const seen = (root) => [...root.querySelectorAll('*')].filter((e) => {
    const words = !['SCRIPT', 'STYLE', 'TITLE', 'OPTION', 'NOSCRIPT'].includes(e.tagName);
    if (words && !e.closest('.hidden') && e.checkVisibility({ opacityProperty: true, visibilityProperty: true })) {
        return [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    }
});
const boxes = (e) => [...e.childNodes].filter((n) => n.nodeType === 3 && n.data.trim()).flatMap((n) => {
    const range = document.createRange();
    range.selectNodeContents(n);
    return [...range.getClientRects()].filter((r) => r.width > 1 && r.height > 1);
});
// A rectangle less what boxes around it clip or scroll away.
const shown = (r, e) => {
    let [left, top, right, bottom] = [r.left, r.top, r.right, r.bottom];
    for (let up = e.parentElement; up; up = up.parentElement) {
        if (getComputedStyle(up).overflow === 'visible') continue;
        const c = up.getBoundingClientRect();
        [left, top, right, bottom] = [Math.max(left, c.left), Math.max(top, c.top), Math.min(right, c.right),
            Math.min(bottom, c.bottom)];
    }
    return right - left > 1 && bottom - top > 1 ? { left, top, right, bottom } : null;
};
const said = (e) => `${e.tagName.toLowerCase()}.${e.getAttribute('class') || ''}: ${e.textContent.trim().slice(0, 60)}`;
"""

_CONTRAST = """
const paint = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
const rgba = (colour) => {
    paint.clearRect(0, 0, 1, 1);
    paint.fillStyle = colour;
    paint.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = paint.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
};
const over = (front, back) => [0, 1, 2].map((k) => front[k] * front[3] + back[k] * (1 - front[3])).concat(1);
const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
};
// Behind text: of a drawing the shapes under its middle, else the colours of elements around it.
const behind = (e) => {
    const layers = [];
    if (e.ownerSVGElement) {
        const t = e.getBoundingClientRect();
        const [x, y] = [t.left + t.width / 2, t.top + t.height / 2];
        const shapes = [...e.ownerSVGElement.querySelectorAll('rect, circle, polygon')].filter((s) => {
            const r = s.getBoundingClientRect();
            const fill = getComputedStyle(s).fill;
            return !s.closest('defs, pattern') && fill.startsWith('rgb') && r.left <= x && x <= r.right && r.top <= y &&
                y <= r.bottom && s.compareDocumentPosition(e) & Node.DOCUMENT_POSITION_FOLLOWING;
        });
        for (const s of shapes.reverse()) {
            const style = getComputedStyle(s);
            const colour = rgba(style.fill);
            colour[3] *= Number(style.fillOpacity);
            layers.push(colour);
        }
    }
    for (let up = e; up; up = up.parentElement) layers.push(rgba(getComputedStyle(up).backgroundColor));
    let back = rgba(getComputedStyle(document.documentElement).colorScheme.includes('dark') ? 'Canvas' : 'white');
    back[3] = 1;
    for (const layer of layers.reverse()) back = over(layer, back);
    return back;
};
const found = seen(document.body).filter((e) => boxes(e).length && !e.closest('[disabled]')).map((e) => {
    const style = getComputedStyle(e);
    const back = behind(e);
    const front = over(rgba(e.ownerSVGElement ? style.fill : style.color), back);
    const [low, high] = [light(front), light(back)].sort((a, b) => a - b);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || size >= 18.66 && Number(style.fontWeight) >= 700;
    return [(high + 0.05) / (low + 0.05), large ? 3 : 4.5, said(e)];
});
const pale = found.filter(([is, least]) => is < least - 0.01);
return pale.map(([is, least, text]) => `${is.toFixed(2)} of ${least}, ${text}`);
"""

_OVERLAPS = """
const leaves = seen(document.body).flatMap((e) => boxes(e).map((r) => [shown(r, e), e])).filter(([r]) => r);
leaves.sort((a, b) => a[0].top - b[0].top);
const out = [];
leaves.forEach(([a, e], n) => {
    for (let k = n + 1; k < leaves.length && leaves[k][0].top < a.bottom - 3; k++) {
        const [b, f] = leaves[k];
        if (e === f || getComputedStyle(e).position === 'sticky' || e.closest('nav') || f.closest('nav')) continue;
        const [wide, high] = [Math.min(a.right, b.right) - Math.max(a.left, b.left),
            Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top)];
        if (wide > 3 && high > 0.3 * Math.min(a.bottom - a.top, b.bottom - b.top)) out.push(`${said(e)} / ${said(f)}`);
    }
});
return out;
"""

#: Cut: text wider or higher than a box around it that neither scrolls nor grows.
_CUT = """
return seen(document.body).filter((e) => {
    for (let up = e; up && up !== document.body; up = up.parentElement) {
        const style = getComputedStyle(up);
        if (/auto|scroll/.test(style.overflowX + style.overflowY)) return false;
        if (style.clip === 'rect(0px, 0px, 0px, 0px)') return false;  // for screen readers alone
        if (/hidden|clip/.test(style.overflowX) && style.position !== 'absolute' &&
            boxes(e).some((r) => r.right > up.getBoundingClientRect().right + 1)) return true;
    }
    return boxes(e).some((r) => r.right > innerWidth + 1 || r.left < -1);
}).map(said);
"""

#: What can be pressed or filled in, by role and name: within one group a name stands once.
_LABELS = """
const named = [...document.querySelectorAll('button, input, select, a[href], [role=button]')]
    .filter((e) => e.checkVisibility() && !e.closest('tbody, .edge'));
const names = named.map((e) => [e, e.getAttribute('aria-label') || e.innerText || e.placeholder || '']);
const [count, groups] = [new Map(), new Map()];
for (const [e, name] of names) {
    const group = e.closest('section, .variant, form, nav, table, [role=tree], main') || document.body;
    if (!groups.has(group)) groups.set(group, groups.size);
    const key = `${e.tagName} ${name.trim()} in ${group.tagName} ${groups.get(group)}`;
    count.set(key, [...(count.get(key) || []), e.href || '']);
}
const one = (links) => links.length === 1 || (links[0] && new Set(links).size === 1);
return [...count].filter(([, links]) => !one(links)).map(([key]) => key);
"""

_ROWS = """
const out = [];
for (const table of document.querySelectorAll('table')) {
    const texts = [...table.querySelectorAll('tbody tr')].map((r) => r.innerText.replace(/\\s+/g, ' ').trim());
    out.push(...texts.filter((t, n) => t && texts.indexOf(t) !== n));
}
return out;
"""


def _found(tab: Tab, code: str) -> list[str]:
    answer: Any = tab.eval(f"(() => {{ {_SEEN} {code} }})()")
    return list(answer)


def low_contrast(tab: Tab) -> list[str]:
    """Text of less than 4.5 to 1 against what is behind it, 3 to 1 where it is large (WCAG 2.1, 1.4.3)."""
    return _found(tab, _CONTRAST)


def overlapping_text(tab: Tab) -> list[str]:
    """Pairs of texts that lie on each other, as they are scrolled and clipped now."""
    return _found(tab, _OVERLAPS)


def cut_text(tab: Tab) -> list[str]:
    """Text that a box cuts or that lies beside the window; boxes that scroll are none."""
    return _found(tab, _CUT)


def equal_labels(tab: Tab) -> list[str]:
    """Controls of one group with the same name; links with one name and one target are one."""
    return _found(tab, _LABELS)


def equal_rows(tab: Tab) -> list[str]:
    """Rows of a table that read the same as another row of it."""
    return _found(tab, _ROWS)
