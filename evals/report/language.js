const pages = [...document.querySelectorAll('.page')]
const show = id => {
  if (!pages.some(page => page.id === id)) return
  for (const page of pages) {
    page.hidden = page.id !== id
    if (!page.hidden) document.documentElement.lang = page.lang
  }
}
document.documentElement.classList.add('scripted')
show(location.hash.slice(1))
addEventListener('hashchange', () => show(location.hash.slice(1)))
addEventListener('click', event => {
  const link = event.target.closest('a[hreflang]')
  if (!link) return
  event.preventDefault()
  show(link.hreflang)
  // A sandboxed frame, such as the registry's, has no address to remember the language in, and says so by an error.
  if (window.origin !== 'null' || location.protocol === 'file:') history.replaceState(null, '', `#${link.hreflang}`)
})
