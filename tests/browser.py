"""The browser of the tests that click, and what a page looks like in it."""

from pathlib import Path

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync")

CUT_OFF = """[...document.querySelectorAll('main *:not(svg, svg *)')]
    .filter(element => !element.closest('.wide') && element.scrollWidth > element.clientWidth + 1
        && getComputedStyle(element).display != 'inline')
    .map(element => element.className + ': ' + element.textContent.slice(0, 40))"""
"""Elements whose text is wider than they are, hidden or not. Only the engineers' table may be scrolled sideways."""

PALE = """(() => {
    const channel = c => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4
    const light = c => 0.2126 * channel(c[0]) + 0.7152 * channel(c[1]) + 0.0722 * channel(c[2])
    const parsed = text => text.match(/[\\d.]+/g).map(Number)
    const ground = element => {
        for (let at = element; at; at = at.parentElement) {
            const found = parsed(getComputedStyle(at).backgroundColor)
            if (found.length < 4 || found[3] == 1) return found
        }
        return [255, 255, 255]
    }
    const pale = []
    for (const element of document.querySelectorAll('body *:not(svg, svg *)')) {
        const own = [...element.childNodes].some(node => node.nodeType == 3 && node.textContent.trim())
        if (!own || !element.checkVisibility()) continue
        const style = getComputedStyle(element)
        const [above, below] = [light(parsed(style.color)), light(ground(element))].sort((a, b) => b - a)
        const ratio = (above + 0.05) / (below + 0.05)
        const size = parseFloat(style.fontSize)
        const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700)
        if (ratio < (large ? 3 : 4.5)) {
            pale.push(ratio.toFixed(2) + ' ' + element.className + ': ' + element.textContent.slice(0, 40))
        }
    }
    return pale
})()"""
"""Visible texts with less contrast than WCAG 2.2 AA asks for (1.4.3): 4.5 to 1, or 3 to 1 where they are large."""
