/** The hash of the page's address. A page inside a notebook has no address of its own: then it is kept here. */

let kept: string | null = null;
const listeners = new Set<(hash: string) => void>();

export function hashNow(): string {
  return kept ?? location.hash;
}

export function go(hash: string, replace = false): void {
  try {
    if (kept !== null) kept = hash;
    else if (replace) history.replaceState(null, "", hash);
    else history.pushState(null, "", hash);
  } catch {
    kept = hash;
  }
  notify();
}

export function followHash(listener: (hash: string) => void): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

export function startAddress(): void {
  addEventListener("hashchange", notify);
  if (location.protocol !== "about:") return;
  // In an iframe of srcdoc, links to a hash are resolved by the address of the page around it, and would lead there.
  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element ? event.target.closest('a[href^="#"]') : null;
    if (!link || event.defaultPrevented) return;
    event.preventDefault();
    go(link.getAttribute("href")!);
  });
}

function notify(): void {
  for (const listener of listeners) listener(hashNow());
}
