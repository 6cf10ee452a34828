/** Compare: the results of a comparison, or the difference between two checkpoints. */

import { register, type ViewProps } from "../register";
import { Differences } from "./compare/difference";
import { Measured } from "./compare/measured";

register({
  id: "compare",
  title: "Compare",
  question: "Which positional encoding holds beyond the trained length, and what differs between two checkpoints?",
  defaults: () => ({ group: "all", log: false, table: "input", k: 10 }),
  Page: Compare,
});

function Compare(props: ViewProps) {
  const { other } = props.about;
  return other === null ? <Measured {...props} /> : <Differences {...props} other={other} />;
}
