/** The overview: the inspection of the open file, in text, tables and charts. */

import { useEffect } from "preact/hooks";
import { visible } from "../escape";
import { useView } from "../hooks";
import { writeLink } from "../link";
import { JobAnswer } from "../parts/states";
import { Sections } from "../parts/sections";
import { views } from ".";
import type { Findings, Section } from "../types";

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
      of={inspection}
      code="ww.inspect(PATH)  # in a terminal: whatwhere inspect"
      how={`${visible(inspection.method)} Norms and shares of variance are computed in float64.`}
      after={more}
    >
      <ul class="plain examples" aria-label="Sections">
        {inspection.sections.map(({ name, title }) => (
          <li key={name}>
            <a href={writeLink("overview", { section: name }, {})}>{title}</a>
          </li>
        ))}
      </ul>
    </Sections>
  );
}
