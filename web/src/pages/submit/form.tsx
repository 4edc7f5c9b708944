import { useId, useState } from "react";

import type { Mistake } from "../../api/client";
import { choicesOf, defaultOf, helpOf } from "./help";
import { fieldsOf, isPlain, valueOf, type Kind, type Part, type Path } from "./jobfile";
import styles from "./form.module.css";

/** How the form changes the file. */
export type OnSet = (path: Path, value: string, kind: Kind) => void;

interface Shown {
  path: string; // with a dot
  name: string;
  kind: Kind;
  as?: "lines" | "choice";
  example?: string;
}

const groups: { name: string; fields: Shown[] }[] = [
  {
    name: "Program",
    fields: [
      { path: "name", name: "Name", kind: "word", example: "resnet50-cifar" },
      { path: "run", name: "Command", kind: "text", as: "lines", example: "python3 train.py" },
      { path: "setup", name: "Set-up", kind: "text", as: "lines", example: "pip install -r requirements.txt" },
    ],
  },
  {
    name: "Resources of each node",
    fields: [
      { path: "resources.gpus", name: "GPUs", kind: "word", example: "1..8" },
      { path: "resources.gpu", name: "GPU models", kind: "list", example: "A100:80GB, H100" },
      { path: "resources.gpu_memory", name: "GPU memory", kind: "word", example: "24GB" },
      { path: "resources.gpu_share", name: "Share of a GPU", kind: "word", example: "0.5" },
      { path: "resources.share_class", name: "Share class", kind: "word", as: "choice" },
      { path: "resources.share_limit", name: "Share limit", kind: "word" },
      { path: "resources.nodes", name: "Nodes", kind: "word" },
      { path: "resources.cpus", name: "CPUs", kind: "word" },
      { path: "resources.memory", name: "Memory", kind: "word", example: "32GB" },
    ],
  },
  {
    name: "Run",
    fields: [
      { path: "expect", name: "Expected to take", kind: "word", example: "6h" },
      { path: "max_duration", name: "Stopped after", kind: "word", example: "12h" },
      { path: "checkpoint.dir", name: "Checkpoints in", kind: "text", example: "checkpoints" },
      { path: "checkpoint.every", name: "Checkpoint every", kind: "word", example: "15m" },
      { path: "retry", name: "Retries", kind: "word" },
      { path: "priority", name: "Priority", kind: "word" },
      { path: "data", name: "Datasets", kind: "list", example: "cifar10" },
      { path: "project", name: "Project", kind: "word" },
      { path: "place", name: "Place", kind: "word", as: "choice" },
    ],
  },
];

/** Fields that the page shows elsewhere. */
const elsewhere = ["resources", "checkpoint", "workdir", "objective", "deadline", "budget"];

/** Form shows one job of the file. What it has no field for is edited in the text. */
export function Form({ part, mistakes, onSet }: { part: Part; mistakes: Mistake[]; onSet: OnSet }) {
  const [focused, setFocused] = useState("");
  const shown = groups.flatMap((g) => g.fields.map((f) => f.path.split(".")[0] ?? ""));
  const others = fieldsOf(part).filter((f) => !shown.includes(f) && !elsewhere.includes(f));

  if (part.problem !== undefined) {
    return (
      <p className={styles.unreadable} role="status">
        The form is back when the text can be read. <bdi>{part.problem}</bdi>
      </p>
    );
  }

  return (
    <form className={styles.form} aria-label="Job" onSubmit={(e) => { e.preventDefault(); }}>
      {groups.map((g) => (
        <fieldset key={g.name}>
          <legend>{g.name}</legend>
          <div className={styles.fields}>
            {g.fields.map((f) => (
              <Field
                key={f.path}
                shown={f}
                part={part}
                mistakes={mistakes.filter((m) => m.field === f.path)}
                onFocus={() => { setFocused(f.path); }}
                onSet={onSet}
              />
            ))}
          </div>
        </fieldset>
      ))}
      <p className={styles.help} aria-hidden="true">
        {focused === "" && "What a field means is shown here."}
        {focused !== "" && <><code>{focused}</code> {helpOf(focused.split("."))}</>}
      </p>
      {others.length > 0 && <p className="faint">Only in the text: {others.join(", ")}</p>}
    </form>
  );
}

interface FieldProps {
  shown: Shown;
  part: Part;
  mistakes: Mistake[];
  onFocus: () => void;
  onSet: OnSet;
}

function Field({ shown: f, part, mistakes, onFocus, onSet }: FieldProps) {
  const id = useId();
  const path = f.path.split(".");
  const written = valueOf(part, path);
  const [typed, setTyped] = useState<string>(); // while it has the focus: "a, " is not yet a list of two
  const plain = isPlain(part, path);
  const help = helpOf(path);
  const standard = defaultOf(path);
  const hint = standard !== "" ? `default ${standard}` : f.example && `e.g. ${f.example}`;

  const props = {
    id,
    value: typed ?? written,
    disabled: !plain,
    "aria-invalid": mistakes.length > 0,
    "aria-describedby": `${id}-help`,
    onFocus,
    onBlur: () => { setTyped(undefined); },
    onChange: (e: { target: { value: string } }) => {
      setTyped(e.target.value);
      onSet(path, e.target.value, f.kind);
    },
  };

  return (
    <div className={`${styles.field} ${f.as === "lines" ? (styles.wide ?? "") : ""}`}>
      <label htmlFor={id}>{f.name}</label>
      {f.as === "lines" && (
        <textarea
          {...props}
          rows={Math.min(12, Math.max(f.path === "run" ? 2 : 1, props.value.split("\n").length))}
          placeholder={hint}
          spellCheck={false}
        />
      )}
      {f.as === "choice" && (
        <select {...props}>
          <option value="">{choicesOf(path)[0]} (default)</option>
          {choicesOf(path).slice(1).map((c) => <option key={c}>{c}</option>)}
        </select>
      )}
      {f.as === undefined && <input {...props} placeholder={hint} autoComplete="off" spellCheck={false} />}
      <span id={`${id}-help`} className="hidden">{plain ? help : "It is edited in the text."}</span>
      {mistakes.map((m) => <p key={m.detail} className={styles.mistake}>{m.detail}</p>)}
    </div>
  );
}
