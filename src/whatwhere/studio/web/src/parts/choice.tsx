/** Controls of a view: one of some values, one of some numbers, and a yes or no. */

interface ChoiceProps {
  label: string;
  value: string;
  /** Values, or values with the text that stands for each. */
  options: readonly (string | readonly [value: string, text: string])[];
  change(value: string): void;
  help?: string;
}

export function Choice({ label, value, options, change, help }: ChoiceProps) {
  return (
    <label class="choice" title={help}>
      {label}{" "}
      <select value={value} onChange={(event) => change(event.currentTarget.value)}>
        {options.map((option) => {
          const [each, text] = typeof option === "string" ? [option, option] : option;
          return (
            <option key={each} value={each}>
              {text}
            </option>
          );
        })}
      </select>
    </label>
  );
}

interface SizeProps {
  label: string;
  value: number;
  sizes: number[];
  change(value: number): void;
  /** The label of 0; without it, 0 is not offered. */
  usual?: string;
}

/** One of some sizes, and the one that is chosen if it is none of them. */
export function SizeChoice({ label, value, sizes, change, usual }: SizeProps) {
  const all = [...new Set([...sizes, ...(value ? [value] : [])])].sort((a, b) => a - b).map(String);
  const options = usual === undefined ? all : [["0", usual] as const, ...all];
  return <Choice label={label} value={String(value)} options={options} change={(size) => change(Number(size))} />;
}

interface FlagProps {
  label: string;
  value: boolean;
  change(value: boolean): void;
  help?: string;
}

export function Flag({ label, value, change, help }: FlagProps) {
  return (
    <label class="choice" title={help}>
      <input type="checkbox" checked={value} onChange={(event) => change(event.currentTarget.checked)} /> {label}
    </label>
  );
}
