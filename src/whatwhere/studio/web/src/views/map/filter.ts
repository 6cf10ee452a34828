/** Which tokens a pattern matches: a part of the text, with ^ and $ for its ends and * for anything between. */

/** Return whether a text matches, without regard to case; in time linear in the text, whatever the pattern. */
export function matcher(pattern: string): (text: string) => boolean {
  const wanted = pattern.trim().toLowerCase();
  const begins = wanted.startsWith("^");
  const ends = wanted.length > 1 && wanted.endsWith("$");
  const parts = wanted.slice(begins ? 1 : 0, ends ? -1 : undefined).split("*");
  return (text) => {
    const low = text.trim().toLowerCase();
    const last = parts.length - 1;
    let at = 0;
    for (let n = 0; n <= last; n++) {
      const part = parts[n]!;
      let from = low.indexOf(part, at);
      if (n === 0 && begins) from = low.startsWith(part) ? 0 : -1;
      if (n === last && ends) {
        const tail = low.length - part.length;
        from = low.endsWith(part) && tail >= at && !(n === 0 && begins && tail > 0) ? tail : -1;
      }
      if (from < 0) return false;
      at = from + part.length;
    }
    return true;
  };
}
