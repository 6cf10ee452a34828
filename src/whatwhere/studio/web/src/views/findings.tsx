/** Views that are read as sections, which Python writes: overview, diagnostics, comparisons, attention by distance. */

import { useEffect } from "preact/hooks";
import { visible } from "../escape";
import { useQuery, useView } from "../hooks";
import { writeLink } from "../link";
import { Choice, Folded } from "../parts/controls";
import { Sections } from "../parts/sections";
import { Answered, JobAnswer } from "../parts/states";
import { runCode } from "../python";
import type { Findings, Section } from "../types";
import { views } from ".";

const MORE: Record<string, string> = {
  norms: "tokens",
  spectrum: "map",
  diagnostics: "diagnostics",
  positions: "positions",
  rotary: "rotary",
  biases: "biases",
};

export function Overview() {
  return (
    <JobAnswer name="overview.inspected" what="inspecting">
      {(inspection) => <Inspected inspection={inspection} />}
    </JobAnswer>
  );
}

function Inspected({ inspection }: { inspection: Findings }) {
  const { about, settings } = useView<{ section: string }>();
  const [warnings, ...sections] = inspection.sections;
  useEffect(() => {
    const current = document.getElementById(`section-${settings.section}`);
    current?.scrollIntoView();
    current?.focus({ preventScroll: true });
  }, [settings.section]);
  const more = ({ name }: Section) => {
    const view = views(about).find(({ id }) => id === MORE[name]);
    return (
      view && (
        <p>
          More: <a href={writeLink(view.id, {}, {})}>{view.title}</a>
        </p>
      )
    );
  };
  return (
    <Sections
      of={{ ...inspection, sections }}
      code="ww.inspect(PATH)  # in a terminal: whatwhere inspect, whatwhere check"
      how={`${visible(inspection.method)} Norms and shares of variance are computed in float64.`}
      after={more}
    >
      <Warnings of={warnings!} />
      <Folded title="sections">
        <ul class="plain examples" aria-label="Sections">
          {sections.map(({ name, title }) => (
            <li key={name}>
              <a href={writeLink("overview", { section: name }, {})}>{title}</a>
            </li>
          ))}
        </ul>
      </Folded>
    </Sections>
  );
}

/** What may be wrong, the worst first, with a link where a view shows more. */
function Warnings({ of: { title, parts } }: { of: Section }) {
  const { about } = useView();
  const [found] = parts;
  const rows = typeof found === "object" && "rows" in found ? found.rows : [];
  const [worse, notes] = [false, true].map((note) => rows.filter(([severity]) => (severity === "note") === note)) as [
    typeof rows,
    typeof rows,
  ];
  const listed = (some: typeof rows) => (
    <ul class="plain warnings">
      {some.map(([severity = "", subject = "", text = ""]) => {
        const [view = "", list = ""] = subject.split(".");
        return (
          <li key={text} class={severity}>
            <b>{severity}</b> {visible(text)}{" "}
            {about.views[view] && <a href={writeLink(view, list ? { list } : {}, {})}>{about.views[view].title}</a>}
          </li>
        );
      })}
    </ul>
  );
  return (
    <section class="near" aria-label={title}>
      <h2>{title}</h2>
      {typeof found === "string" && <p>{found}</p>}
      {listed(worse)}
      {notes.length > 0 &&
        (worse.length ? <Folded title={`${notes.length} more`}>{listed(notes)}</Folded> : listed(notes))}
    </section>
  );
}

export function Diagnostics() {
  return (
    <JobAnswer name="diagnostics.examine" what="examining the table">
      {(examined) => <Examined examined={examined} />}
    </JobAnswer>
  );
}

function Examined({ examined }: { examined: Findings }) {
  const { list } = useView<{ list: string }>().settings;
  const [counts, lists] = [examined.sections[0]!, examined.sections.slice(1, -1)];
  const now = lists.find(({ name }) => name === list) ?? lists[0]!;
  // Beside the list: rows of low norm and far from the mean, by which readers judge themselves, and the histograms.
  const beside = lists.filter((each) => /^(far|empty)$/.test(each.name) && each !== now);
  return (
    <Sections
      of={{ ...examined, sections: [counts, now, ...beside, examined.sections.at(-1)!] }}
      open
      code="whatwhere inspect PATH --sections diagnostics --json"
      how={examined.method}
      after={(section) =>
        section === counts &&
        lists.length > 1 && (
          <div class="controls">
            <Choice label="list" name="list" value={now.name} options={lists.map(({ name, title }) => [name, title])} />
          </div>
        )
      }
    />
  );
}

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

function Differences({ other }: { other: string }) {
  const { about, settings } = useView<{ table: string; k: number }>();
  const { table, k } = settings;
  const second = /^[\w./-]+$/.test(other) ? other : "OTHER";
  return (
    <>
      <p class="note">
        A is <code title={about.path}>{shortened(about.path)}</code>, B <code title={other}>{shortened(other)}</code>.
      </p>
      <div class="controls">
        <Folded title="rows and neighbors">
          <Choice
            label="rows of"
            name="table"
            options={[
              ["input", "the token tables"],
              ["output", "the output projections"],
            ]}
          />
          <Choice label="neighbors" name="k" options={[1, 5, 10, 20, 50]} />
        </Folded>
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

function shortened(path: string): string {
  return path.split(/[\\/]/).slice(-2).join("/");
}

export function AttentionByDistance() {
  const { run } = useView();
  return (
    <Answered query={useQuery("replay.attention", { run })} what="reading the run">
      {(found) => (
        <Sections
          of={found}
          code={`${runCode(run)}\nresults.trace(run)  # by length, as in attention@6: layers, heads, distances`}
          how="Weights as the run recorded them when it ended."
        />
      )}
    </Answered>
  );
}
