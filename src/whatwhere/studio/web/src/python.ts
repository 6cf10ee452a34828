/** The Python below a figure: public names alone, ready to run. */

import type { About } from "./types";

/** What is open, and the run that is looked at, or "". */
export type Open = Pick<About, "kind" | "path" | "run">;

const IMPORTS: [RegExp, string][] = [
  [/\bnp\./, "import numpy as np"],
  [/\btorch\./, "import torch"],
  [/\bww\.\w+/, "import whatwhere as ww"],
];
/** The table of a session without files: whatwhere.studio.session.fresh samples it. */
const FRESH_TABLE = "np.random.default_rng(0).standard_normal((20, 64)).astype(np.float32)";

/** Return lines that run as they are, with their imports in front and the path of what is open for PATH; or null. */
export function runnable(written: string, { kind, path, run }: Open): string | null {
  const code = run ? ofRun(written, run) : written;
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

/** Read the run that is looked at: its tensors have its name in front, where they have none yet. */
function ofRun(code: string, run: string): string {
  return code
    .replaceAll(/ww\.read\(PATH\)\.array\((["'])(?=[^"'/]*\1)/g, (all) => `${all}${run}/`)
    .replaceAll("ww.inspect(PATH)", `ww.inspect(PATH, run=${JSON.stringify(run)})`)
    .replace(/^whatwhere (inspect|encode --from) PATH/, `$& --run ${run}`);
}

function withFreshTable(code: string): string {
  return code.replaceAll(
    /ww\.read\(PATH\)\.array\(['"]tokens\.weight['"](?:, rows=(\[[^\]]*\]))?\)/g,
    (_, rows: string | undefined) => `${FRESH_TABLE}${rows ? `[${rows}]` : ""}`,
  );
}

/** Return the Python that reads a run of the open folder. */
export function runCode(run: string): string {
  const file = JSON.stringify(`models/${run}.safetensors`);
  return `results = ww.comparison.read_results(PATH)\nrun = next(run for run in results.runs if run.file == ${file})`;
}

/** Return a text in quotation marks; PATH stays a word of the text and is not taken for the path of what is open. */
export function literal(text: string): string {
  return JSON.stringify(text).replaceAll("PATH", "PAT\\u0048");
}
