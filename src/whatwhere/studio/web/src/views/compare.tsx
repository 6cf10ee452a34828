/** Compare: the results of a comparison, or the difference between two checkpoints. */

import { visible } from "../escape";
import { useView } from "../hooks";
import { Choice, type Option } from "../parts/controls";
import { How } from "../parts/figure";
import { JobAnswer } from "../parts/states";
import { Parts } from "../parts/sections";
import { Measured } from "./compare/measured";

export function Compare() {
  const { other } = useView().about;
  return other === null ? <Measured /> : <Differences other={other} />;
}

const TABLES: Option[] = [
  ["input", "the token tables"],
  ["output", "the output projections"],
];

export function Differences({ other }: { other: string }) {
  const { about, settings } = useView<{ table: string; k: number }>();
  const { table, k } = settings;
  const second = /^[\w./-]+$/.test(other) ? other : "OTHER";
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
        <Choice label="rows of" name="table" options={TABLES} />
        <Choice label="neighbors" name="k" options={[1, 5, 10, 20, 50]} />
      </div>
      <JobAnswer name="compare.difference" settings={{ table, k }} what="comparing">
        {({ headline, sections }) => (
          <div class="difference">
            <p class="answer">{visible(headline)}.</p>
            {sections.map((section) => (
              <section key={section.name} class="near apart" aria-label={section.title}>
                <h2>{section.title}</h2>
                <div class="beside">
                  <Parts section={section} />
                </div>
              </section>
            ))}
            <How
              code={`whatwhere diff PATH ${second} --table ${table} -k ${k} --json`}
              text={
                "Tokens are matched by their text, or by id where one file has no tokens; distances and cosines of " +
                "rows are computed in float64."
              }
            />
          </div>
        )}
      </JobAnswer>
    </>
  );
}
