// Bundle the page into dist/: node build.mjs [folder]. Nothing in it is fetched from anywhere once it is built.
import { build } from "esbuild";
import { cpSync, existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const dist = process.argv[2] ?? join(here, "dist");

rmSync(dist, { recursive: true, force: true });
mkdirSync(dist, { recursive: true });
const { metafile } = await build({
  absWorkingDir: here,
  entryPoints: { studio: "src/main.tsx" },
  outdir: dist,
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "linked",
  metafile: true,
  logLevel: "warning",
});
cpSync(join(here, "src/index.html"), join(dist, "index.html"));
writeFileSync(join(dist, "THIRD-PARTY.txt"), notices(Object.keys(metafile.inputs)));

/** Return the licenses of the packages that the bundle holds, each text once. */
function notices(inputs) {
  const used = inputs.map((path) => path.match(/node_modules\/((?:@[^/]+\/)?[^/]+)\//)?.[1]).filter(Boolean);
  const named = new Map();
  for (const name of [...new Set(used)].sort()) {
    const { head, text } = license(name);
    named.set(text, [...(named.get(text) ?? []), head]);
  }
  return [...named].map(([text, heads]) => `${heads.join("\n")}\n\n${text}`).join("\n\n");
}

function license(name) {
  const folder = join(here, "node_modules", name);
  const said = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
  if (!file || !existsSync(join(folder, file))) throw new Error(`${name} comes without its license`);
  const text = readFileSync(join(folder, file), "utf8").trim();
  return { head: `${name} ${said.version} (${said.license})`, text };
}
