/** View 9, the variance split: how much of the first layer's input variance token and position explain. */

import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { pageColor, seriesColor } from "../colors";
import { useQuery, useRested } from "../hooks";
import { fixed, formatNumber, whole } from "../numbers";
import { Figure } from "../parts/figure";
import { How } from "../parts/how";
import { Lines, type LinesProps, linesSvg } from "../parts/lines";
import { Flag, SchemeChoice, SchemeFacts, SizeChoice } from "../parts/scheme";
import { Slider } from "../parts/slider";
import { Answered } from "../parts/states";
import { BAR, barRows } from "../parts/bars";
import { box, drawing, label, textWidth } from "../parts/svg";
import { register, type ViewProps } from "../register";
import type { Settings } from "../source";
import type { About, VarianceShares } from "../types";

const PARTS = ["token", "position", "both"];
const COLORS = [2, 1, 0];

register({
  id: "variance",
  order: 9,
  title: "Variance split",
  question: "How much of the variance of the first layer's input does the token explain, and how much its position?",
  defaults,
  shown: () => true,
  byRun: true,
  Page: VarianceSplit,
});

function defaults(about: About): Settings {
  return { ...about.begin["variance"] };
}

function VarianceSplit({ about, settings, change }: ViewProps) {
  const query = useQuery("variance.shares", useRested(settings, 250));
  return (
    <>
      <div class="controls">
        {about.tables.input && (
          <label class="choice">
            what{" "}
            <select
              value={String(settings["tokens"])}
              onChange={(event) => change({ tokens: event.currentTarget.value })}
            >
              <option value="loaded">
                {about.kind === "fresh" ? "the 20 tokens of expressions" : "the tokens of what is open"}
              </option>
              <option value="words">512 random rows, N(0, 1)</option>
            </select>
          </label>
        )}
        <SchemeChoice about={about} settings={settings} change={change} doors={["input"]} />
        <SizeChoice
          label="positions"
          name="rows"
          sizes={[16, 64, 128, 512, 1024, 4096]}
          settings={settings}
          change={change}
        />
        {settings["tokens"] === "words" && settings["scheme"] !== "model" && (
          <SizeChoice
            label="features"
            name="dim"
            sizes={[16, 64, 256, 768]}
            settings={settings}
            change={change}
            usual="as open"
          />
        )}
        <Slider
          label="token vectors ×"
          value={Number(settings["scale"])}
          low={0.01}
          high={100}
          base={10}
          steps={10}
          whole={false}
          change={(scale, now) => change({ scale }, now)}
        />
        <Flag label="normalize each sum, as a LayerNorm does" name="normalize" settings={settings} change={change} />
      </div>
      <Answered query={query} what="splitting the variance">
        {(answer) => (
          <>
            {answer.shares ? (
              <Split answer={answer.shares} dim={answer.dim} />
            ) : (
              <p class="lead">
                {sentence(answer.missing ?? "")} Choose a scheme above to see what adding one would do.
              </p>
            )}
            <SchemeFacts title={answer.title} doors={answer.doors} notes={answer.notes} />
          </>
        )}
      </Answered>
    </>
  );
}

function sentence(words: string): string {
  return words.charAt(0).toUpperCase() + words.slice(1);
}

function percent(share: number): string {
  return `${fixed(100 * share, 1)} %`;
}

interface Bar {
  name: string;
  parts: number[];
}

function Split({ answer, dim }: { answer: VarianceShares; dim: number }) {
  const all: Bar = { name: "all", parts: [answer.token, answer.position, answer.interaction] };
  const bars = useMemo(() => windowsOf(answer), [answer]);
  const around = [
    answer.factor !== 1 && `the model multiplies tokens by ${formatNumber(answer.factor, 4)}`,
    answer.scale !== 1 && `tokens are multiplied by ${formatNumber(answer.scale, 4)} here`,
    answer.added && "the embedding of the first segment is added",
    answer.norm && `then ${answer.norm}`,
  ].filter(Boolean);
  return (
    <>
      <p class="split">
        <b>{percent(answer.token)}</b> token, <b>{percent(answer.position)}</b> position,{" "}
        <b>{percent(answer.interaction)}</b> their interaction.
      </p>
      <div class="two even">
        <Stack
          title="Variance explained"
          file="shares"
          note={
            `${whole(answer.tokens)} tokens at ${whole(answer.rows)} positions. ` +
            `The median norm of a token vector is ${formatNumber(answer.norms.token)}, ` +
            `of a position vector ${formatNumber(answer.norms.position)}.`
          }
          bars={[all]}
          how={
            <How code={answer.python}>
              <p>
                x(t, p) = norm(s E[t] + P[p]) for every token with every position: x − mean = token(t) + position(p) +
                the rest, a two-way analysis of variance. The three parts are orthogonal, so that their variances sum to
                that of x. {around.length > 0 && `${sentence(around.join(", "))}.`} Each token counts alike, as rare
                ones do not in a text.
              </p>
            </How>
          }
        />
        <Stack
          title="By range of positions"
          file="shares-by-window"
          note="The same among the positions of a range alone, as in a short text."
          bars={bars}
          how={
            <How>
              <p>
                As on the left, with 96 tokens and at most 96 positions of each range, sampled by the seed: right to
                about a percent.
              </p>
            </How>
          }
        />
      </div>
      <p class="note">
        The mean |cos| of token and position vectors, each less its mean, is {formatNumber(answer.mean_abs_cosine)}: 0
        where all are orthogonal, about {formatNumber(Math.sqrt(2 / (Math.PI * dim)), 2)} where their directions are
        random, in {dim} features.
      </p>
      <ByScale answer={answer} />
    </>
  );
}

function windowsOf(answer: VarianceShares): Bar[] {
  const { windows, by_window } = answer;
  return Array.from({ length: windows.shape[0] ?? 0 }, (_, n) => ({
    name: windows.values[2 * n] === 1 ? "all but 0" : `${windows.values[2 * n]} to ${windows.values[2 * n + 1]! - 1}`,
    parts: [0, 1, 2].map((part) => by_window.values[3 * n + part]!),
  }));
}

interface StackProps {
  title: string;
  file: string;
  note: string;
  bars: Bar[];
  how: ComponentChildren;
}

function Stack({ title, file, note, bars, how }: StackProps) {
  return (
    <Figure
      title={title}
      note={note}
      file={file}
      svg={(width) => stackSvg(title, bars, width)}
      rows={bars}
      columns={[
        { title: "positions", value: ({ name }) => name },
        ...PARTS.map((part, n) => ({
          title: part,
          numeric: true,
          value: ({ parts }: Bar) => parts[n]!,
          cell: ({ parts }: Bar) => percent(parts[n]!),
        })),
      ]}
      how={how}
    >
      <ul class="stacks">
        {bars.map(({ name, parts }) => (
          <li key={name}>
            <span>{name}</span>
            <span
              class="stack"
              role="img"
              aria-label={PARTS.map((part, n) => `${part} ${percent(parts[n]!)}`).join(", ")}
            >
              {parts.map((share, n) => (
                <i key={n} style={{ width: `${100 * share}%`, background: `var(--c${COLORS[n]})` }} />
              ))}
            </span>
            <span class="value">
              {percent(parts[0]!)} · {percent(parts[1]!)}
            </span>
          </li>
        ))}
      </ul>
      <p class="under">
        <span class="groups">
          {PARTS.map((part, n) => (
            <span key={part}>
              <i style={{ background: `var(--c${COLORS[n]})` }} /> {part}
            </span>
          ))}
        </span>
      </p>
    </Figure>
  );
}

function stackSvg(title: string, bars: Bar[], width = 760): string {
  const colors = COLORS.map(seriesColor);
  const rows = bars.map(({ name, parts: shares }) => ({ name, shares, text: shares.map(percent).join(" · ") }));
  const under = 18 + BAR * bars.length;
  let left = 12;
  const legend = PARTS.flatMap((part, n) => {
    const at = left;
    left += 32 + textWidth(part);
    return [box(at, under, 12, 12, colors[n]!), label(at + 18, under + 11, part, "start", pageColor("muted"))];
  });
  return drawing(width, under + 22, title, [...barRows(rows, colors, 0, 4, width), ...legend]);
}

/** At which factor of the token vectors token and position explain equally much, by interpolation between points. */
function balance({ x, curves }: LinesProps): string {
  const lead = Array.from(x, (_, n) => (curves[0]?.values[n] ?? 0) - (curves[1]?.values[n] ?? 0));
  const n = lead.findIndex((more, n) => n > 0 && lead[n - 1]! < 0 && more >= 0);
  if (n < 0) return `At all of these factors the ${lead[0]! < 0 ? "position" : "token"} explains more.`;
  const part = lead[n - 1]! / (lead[n - 1]! - lead[n]!);
  const factor = x[n - 1]! * (x[n]! / x[n - 1]!) ** part;
  return `Both explain equally much at a factor of about ${formatNumber(factor, 2)}; above it the token explains more.`;
}

function ByScale({ answer }: { answer: VarianceShares }) {
  const { scales, by_scale } = answer;
  const props: LinesProps = useMemo(() => {
    const x = Array.from(scales.values, (more) => more * answer.scale);
    return {
      title: "With token vectors of another scale",
      x,
      curves: PARTS.map((name, part) => ({
        name,
        values: x.map((_, n) => 100 * by_scale.values[3 * n + part]!),
        color: COLORS[part]!,
      })),
      xLabel: "token vectors ×",
      yLabel: "percent",
      logX: true,
      marks: [{ x: answer.scale, text: "as shown" }],
    };
  }, [answer]);
  return (
    <Figure
      title={props.title}
      note={balance(props)}
      file="shares-by-scale"
      svg={(width) => linesSvg(props, width)}
      rows={Array.from({ length: scales.values.length }, (_, n) => n)}
      columns={[
        { title: "times", numeric: true, value: (n) => props.x[n]!, cell: (n) => formatNumber(props.x[n]) },
        ...props.curves.map(({ name, values }) => ({
          title: name,
          numeric: true,
          value: (n: number) => values[n] ?? null,
          cell: (n: number) => `${formatNumber(values[n])} %`,
        })),
      ]}
      how={
        <How>
          <p>
            The split above with s times each factor, on 96 tokens and 96 positions, sampled by the seed: right to about
            a percent.
          </p>
        </How>
      }
    >
      <Lines {...props} />
    </Figure>
  );
}
