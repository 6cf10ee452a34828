/** Compare: the results of a comparison, or the difference between two checkpoints. */

import { useQuery, useView } from "../hooks";
import { Choice, type Option } from "../parts/controls";
import { Sections } from "../parts/sections";
import { Answered, JobAnswer } from "../parts/states";

export function Compare() {
  const { other } = useView().about;
  return other === null ? <Measured /> : <Differences other={other} />;
}

function Measured() {
  return (
    <Answered query={useQuery("compare.results", {})} what="reading the results">
      {(results) => (
        <Sections
          of={results}
          code={
            "results = ww.comparison.read_results(PATH)\n" +
            "[(scheme, results.score(scheme, None)) for scheme in results.schemes]  # in length; else pass a length"
          }
          how="Each number is that of results.json in this folder, or follows from the tables of its runs."
        />
      )}
    </Answered>
  );
}

const TABLES: Option[] = [
  ["input", "the token tables"],
  ["output", "the output projections"],
];

function Differences({ other }: { other: string }) {
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
        {(difference) => (
          <div class="difference">
            <Sections
              of={difference}
              code={`whatwhere diff PATH ${second} --table ${table} -k ${k} --json`}
              how={
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
