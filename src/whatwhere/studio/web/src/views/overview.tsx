/** The overview: the inspection of the open file, in text, tables and charts. */

import { useEffect, useRef } from "preact/hooks";
import { visible } from "../escape";
import { useView } from "../hooks";
import { writeLink } from "../link";
import { How } from "../parts/figure";
import { JobAnswer } from "../parts/states";
import { Parts } from "../parts/sections";
import { views } from ".";
import type { Findings } from "../types";

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
      {(inspection) => <Sections inspection={inspection} />}
    </JobAnswer>
  );
}

function Sections({ inspection }: { inspection: Findings }) {
  const { about, settings } = useView<{ section: string }>();
  const { headline, method, sections } = inspection;
  const current = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    current.current?.scrollIntoView();
    current.current?.focus({ preventScroll: true });
  }, [settings.section]);
  const more = (name: string) => views(about).find(({ id }) => id === MORE[name]);
  return (
    <>
      <p class="answer">{visible(headline)}.</p>
      <ul class="plain examples" aria-label="Sections">
        {sections.map(({ name, title }) => (
          <li key={name}>
            <a href={writeLink("overview", { section: name }, {})}>{title}</a>
          </li>
        ))}
      </ul>
      {sections.map((section) => (
        <section key={section.name} class="near apart" aria-label={section.title}>
          <h2 ref={section.name === settings.section ? current : null} tabIndex={-1}>
            {section.title}
          </h2>
          <div class="beside">
            <Parts section={section} />
          </div>
          {more(section.name) && (
            <p>
              More: <a href={writeLink(MORE[section.name]!, {}, {})}>{more(section.name)!.title}</a>
            </p>
          )}
        </section>
      ))}
      <How
        code={"ww.inspect(PATH)  # in a terminal: whatwhere inspect"}
        text={`${visible(method)} Norms and shares of variance are computed in float64.`}
      />
    </>
  );
}
