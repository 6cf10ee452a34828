/** Texts as Python writes them. */

/** Return a text in quotation marks; PATH stays a word of the text and is not taken for the path of what is open. */
export function literal(text: string): string {
  return JSON.stringify(text).replaceAll("PATH", "PAT\\u0048");
}
