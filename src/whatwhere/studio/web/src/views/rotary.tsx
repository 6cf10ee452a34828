/** The rotary lab: the rotations of the pairs of two configurations, and their agreement by distance. */

import { useQuery } from "../hooks";
import { formatNumber, whole } from "../numbers";
import { Choice } from "../parts/choice";
import { Parameters, Slider, withParameter } from "../parts/slider";
import { Answered, Wrong } from "../parts/states";
import { register, type ViewProps } from "../register";
import type { Settings } from "../source";
import type { PairRotations, RotaryConfiguration, RotaryLab } from "../types";
import { Agreement, Slowdown, Wavelengths } from "./rotary/figures";

const SIDES = ["a", "b"] as const;
const MAX_LENGTH = 1 << 24;

const DEFAULTS: Settings = { a: "", b: "", claimed: 0 };

register({
  id: "rotary",
  title: "Rotary lab",
  question:
    "How many rotations does each pair make within the trained and the claimed length, and what does a scaling change?",
  defaults: () => DEFAULTS,
  Page: Rotary,
});

function Rotary({ settings, change }: ViewProps) {
  const query = useQuery("rotary.lab", settings);
  return (
    <Answered query={query} what="rotating pairs">
      {(lab) => <LabOf lab={lab} settings={settings} change={change} />}
    </Answered>
  );
}

function LabOf({ lab, settings, change }: { lab: RotaryLab } & Pick<ViewProps, "settings" | "change">) {
  return (
    <>
      <p class="note">
        {lab.missing === null
          ? "The lab begins with this model’s own parameters."
          : `The open model has no rotary: ${lab.missing}. The lab begins with a plain one.`}
      </p>
      <div class="pair">
        {SIDES.map((side, n) => (
          <Configuration
            key={side}
            side={side}
            of={lab.sides[n]!}
            lab={lab}
            text={String(settings[side])}
            change={change}
          />
        ))}
      </div>
      <div class="wide">
        <Slider
          label="length of the text"
          help="the length at which both are compared"
          value={lab.claimed}
          low={32}
          high={MAX_LENGTH}
          base={2}
          steps={2}
          whole
          change={(claimed, now) => change({ claimed: Math.round(claimed) }, now)}
        />
      </div>
      <Wavelengths lab={lab} />
      <div class="pair">
        <Slowdown lab={lab} />
        <Agreement lab={lab} />
      </div>
    </>
  );
}

interface ConfigurationProps {
  side: (typeof SIDES)[number];
  of: RotaryConfiguration;
  lab: RotaryLab;
  text: string;
  change: ViewProps["change"];
}

function Configuration({ side, of, lab, text, change }: ConfigurationProps) {
  const row = lab.scalings.find(({ name }) => name === of.scaling);
  const name = side.toUpperCase();
  return (
    <section class="configuration" aria-label={`Configuration ${name}`}>
      <h2>
        {name} <small>{text ? `${of.title}, changed` : of.title}</small>
      </h2>
      <div class="controls">
        <Choice
          label="preset"
          value={of.preset}
          options={lab.presets.map((preset) => [preset.name, preset.title] as const)}
          change={(preset) => change({ [side]: `from=${preset}` })}
        />
        <Choice
          label="scaling"
          value={of.scaling}
          options={lab.scalings.map((scaling) => scaling.name)}
          change={(scaling) => change({ [side]: withParameter(text, "scaling", scaling) })}
        />
        <button type="button" disabled={!text} onClick={() => change({ [side]: "" })}>
          Reset {name}
        </button>
      </div>
      <Parameters
        of={of.parameters}
        set={(parameter, value, now) => change({ [side]: withParameter(text, parameter, value) }, now)}
      />
      {row && (
        <p class="note">
          {row.formula} (<a href={row.url}>{row.paper}</a>)
          {of.own_lists && "; the factors of each pair are this model’s own"}
          {of.scaling === "longrope" &&
            !of.own_lists &&
            "; instead of searched factors, these rise evenly from 1 to the factor"}
        </p>
      )}
      {of.problem !== null && <Wrong message={of.problem} />}
      {of.rotations && <Facts of={of.rotations} lengths={of.lengths} claimed={lab.claimed} />}
    </section>
  );
}

function Facts({ of, lengths, claimed }: { of: PairRotations; lengths: string; claimed: number }) {
  return (
    <ul class="facts">
      <li>
        <b>
          {of.partial_count} of {of.pairs}
        </b>{" "}
        pairs make no full rotation in the trained {whole(of.trained)}
      </li>
      <li>
        <b>{of.unseen_count}</b> of these reach angles at {whole(claimed)} that training never did
      </li>
      <li>
        <b>{of.partial_claimed_count}</b> make no full rotation in {whole(claimed)}
        {of.constant_count > 0 && `; ${of.constant_count} never rotate`}
      </li>
      {of.magnitude !== 1 && (
        <li>
          queries and keys times <b>{formatNumber(of.magnitude, 4)}</b>
        </li>
      )}
      {of.follows_length && <li>the frequencies follow the length; shown are those of a text of {whole(claimed)}</li>}
      {lengths && <li>{lengths}</li>}
    </ul>
  );
}
