/** Two checkpoints side by side: the report of their difference, and the choice of what is compared. */

import { useEffect } from "preact/hooks";
import { visible } from "../../escape";
import { useJob } from "../../jobs";
import { Choice, SizeChoice } from "../../parts/choice";
import { How } from "../../parts/figure";
import { JobProgress } from "../../parts/progress";
import { Parts } from "../../parts/sections";
import { Wrong } from "../../parts/states";
import type { ViewProps } from "../../register";
import type { About, DifferenceReport } from "../../types";

const TABLES = [["input", "the token tables"] as const, ["output", "the output projections"] as const];

export function Differences({ about, settings, change, other }: ViewProps & { other: string }) {
  const [table, k] = [settings["table"] === "output" ? "output" : "input", Number(settings["k"])];
  const job = useJob("compare.difference", { table, k });
  const starts = job.state === "idle";
  useEffect(() => {
    if (starts) job.start();
  }, [starts, table, k]);
  const second = /^[\w./-]+$/.test(other) ? other : "OTHER";
  const code = `whatwhere diff PATH ${second} --table ${table} -k ${k} --json`;
  return (
    <>
      <dl>
        <dt>A</dt>
        <dd>
          <code>{about.path}</code>
        </dd>
        <dt>B</dt>
        <dd>
          <code>{other}</code>
        </dd>
      </dl>
      <div class="controls">
        <Choice label="rows of" value={table} options={TABLES} change={(table) => change({ table })} />
        <SizeChoice label="neighbors" value={k} sizes={[1, 5, 10, 20, 50]} change={(k) => change({ k })} />
      </div>
      <JobProgress job={job} what="Comparing" stop={job.stop} />
      {job.state === "stopped" && (
        <button type="button" onClick={job.start}>
          Compare
        </button>
      )}
      {job.problem !== null && <Wrong message={job.problem} />}
      {job.answer && <Report report={job.answer} about={about} code={code} />}
    </>
  );
}

function Report({ report, about, code }: { report: DifferenceReport; about: About; code: string }) {
  return (
    <div class="difference">
      <p class="answer">{visible(report.headline)}.</p>
      {report.sections.map((section) => (
        <section key={section.name} class="near apart" aria-label={section.title}>
          <h2>{section.title}</h2>
          <div class="beside">
            <Parts section={section} about={about} />
          </div>
        </section>
      ))}
      <How code={code}>
        <p>
          Tokens are matched by their text, or by id where one file has no tokens; distances and cosines of rows are
          computed in float64.
        </p>
      </How>
    </div>
  );
}
