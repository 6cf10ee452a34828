/** The Python below a figure: public names alone, ready to run. */

import type { About } from "./types";

const IMPORTS: [RegExp, string][] = [
  [/\bnp\./, "import numpy as np"],
  [/\btorch\./, "import torch"],
  [/\bww\.\w+/, "import whatwhere as ww"],
];
/** The table of a session without files: whatwhere.studio.session.fresh samples it. */
const FRESH_TABLE = "np.random.default_rng(0).standard_normal((20, 64)).astype(np.float32)";

/** Return lines that run as they are, with their imports in front and the path of what is open for PATH; or null. */
export function runnable(code: string, { kind, path }: Pick<About, "kind" | "path">): string | null {
  if (kind !== "results" && /\bread_results\(/.test(code)) return null; // a run that was trained here has no folder
  if (code.startsWith("whatwhere ")) {
    return kind === "fresh" ? null : code.replace("PATH", /^[\w./-]+$/.test(path) ? path : "PATH");
  }
  const own = kind === "fresh" ? withFreshTable(code) : code;
  if (kind === "fresh" && /\bPATH\b/.test(own)) return null; // there is no file
  const lines = [...new Set(own.split("\n"))];
  const imports = lines.filter((line) => /^(from|import) /.test(line));
  const rest = lines.filter((line) => !imports.includes(line));
  const needed = IMPORTS.filter(([used]) => rest.some((line) => used.test(line))).map(([, line]) => line);
  const all = [...new Set([...needed, ...imports])];
  return [...all, ...rest].join("\n").replaceAll(/\bPATH\b/g, path ? JSON.stringify(path) : "PATH");
}

function withFreshTable(code: string): string {
  return code.replaceAll(
    /ww\.read\(PATH\)\.array\(['"]tokens\.weight['"](?:, rows=(\[[^\]]*\]))?\)/g,
    (_, rows: string | undefined) => `${FRESH_TABLE}${rows ? `[${rows}]` : ""}`,
  );
}
