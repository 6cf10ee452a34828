/** The lines of Python that stand below a figure. */

import type { About } from "./types";

const IMPORTS: [RegExp, string][] = [
  [/\bnp\./, "import numpy as np"],
  [/\btorch\./, "import torch"],
  [/(?<!from )\bwhatwhere\.\w+/, "import whatwhere"],
  [/\bPath\(/, "from pathlib import Path"],
  [/\bread_results\(/, "from whatwhere.comparison import read_results"],
  [/\bSession\./, "from whatwhere.studio.session import Session"],
];

/** Give lines that run as they stand: what they name is imported in front, and PATH is what is open. */
export function runnable(code: string, { kind, path }: Pick<About, "kind" | "path">): string | null {
  if (kind !== "results" && /\bread_results\(/.test(code)) return null; // of a run that was trained here, and is in no folder
  if (kind === "fresh" && /\binspect\b/.test(code)) return null; // which takes files
  if (code.startsWith("whatwhere ")) return code.replace("PATH", /^[\w./-]+$/.test(path) ? path : "PATH");
  const lines = [...new Set(code.split("\n").map((line) => (kind === "fresh" ? line.replace("whatwhere.read(PATH)", "Session.open(PATH).checkpoint") : line)))];
  const imports = lines.filter((line) => /^(from|import) /.test(line));
  const rest = lines.filter((line) => !imports.includes(line));
  const also = IMPORTS.filter(([used, line]) => rest.some((each) => used.test(each)) && !imports.includes(line)).map(([, line]) => line);
  const open = kind === "fresh" ? "None" : path && JSON.stringify(path);
  return [...also, ...imports, ...rest].join("\n").replaceAll(/\bPATH\b/g, open || "PATH");
}
