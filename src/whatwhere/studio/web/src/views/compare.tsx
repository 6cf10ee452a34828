/** View 10, compare: the results of a comparison, or the difference between two checkpoints. */

import { Wrong } from "../parts/states";
import { register, type ViewProps } from "../register";
import { Differences } from "./compare/difference";
import { Measured } from "./compare/measured";

register({
  id: "compare",
  order: 10,
  title: "Compare",
  question: "Which positional encoding holds beyond the trained length, and what differs between two checkpoints?",
  defaults: () => ({ group: "all", log: false, table: "input", k: 10 }),
  shown: () => true,
  empty: ({ kind, other }) =>
    kind === "results" || other !== null ? null : "Only one file is open, so there is nothing to compare it with.",
  Page: Compare,
});

function Compare(props: ViewProps) {
  const { about } = props;
  if (about.other !== null) return <Differences {...props} other={about.other} />;
  if (about.kind === "results") return <Measured {...props} />;
  return (
    <>
      <Wrong message="Only one file is open, so there is nothing to compare it with." />
      <p>Two models, or one model in two formats, are compared token by token:</p>
      <pre tabIndex={0}>
        <code>whatwhere studio {about.kind === "fresh" ? "A B" : `${about.path} B`}</code>
      </pre>
      <p>
        Positional encodings are compared by training the same small model under each; the demo takes about two minutes:
      </p>
      <pre tabIndex={0}>
        <code>{"whatwhere demo\nwhatwhere studio whatwhere-demo"}</code>
      </pre>
      <p>
        To train one such model on this page: <a href="#/replay">Training replay</a>.
      </p>
    </>
  );
}
