import { useId, useState } from "react";

import { helpOf } from "./help";
import type { OnSet } from "./form";
import { valueOf, withZone, type Part } from "./jobfile";
import styles from "./submit.module.css";

const aims = [
  { value: "time", name: "Fast" },
  { value: "", name: "Balanced" },
  { value: "cost", name: "Cheap" },
];

/** Aim is what the job is planned for. It is part of the file, like all else. */
export function Aim({ part, onSet }: { part: Part; onSet: OnSet }) {
  const id = useId();
  const objective = valueOf(part, ["objective"]);
  const chosen = objective === "balanced" ? "" : objective;

  return (
    <div className={styles.aim}>
      <fieldset className={styles.aims} title={helpOf(["objective"])}>
        <legend className="hidden">Objective</legend>
        {aims.map((a) => (
          <label key={a.name}>
            <input
              type="radio"
              name={id}
              checked={chosen === a.value}
              disabled={part.problem !== undefined}
              onChange={() => { onSet(["objective"], a.value, "word"); }}
            />
            {a.name}
          </label>
        ))}
      </fieldset>
      <Deadline part={part} onSet={onSet} />
      <Budget part={part} onSet={onSet} />
    </div>
  );
}

/** The deadline in the time of this browser; the file has it with its zone. */
function Deadline({ part, onSet }: { part: Part; onSet: OnSet }) {
  const written = valueOf(part, ["deadline"]);

  return (
    <label title={helpOf(["deadline"])}>
      Done by
      <input
        type="datetime-local"
        value={localOf(written)}
        disabled={part.problem !== undefined}
        onChange={(e) => {
          const at = e.target.value;
          onSet(["deadline"], at === "" ? "" : withZone(at), "text");
        }}
      />
    </label>
  );
}

/** localOf writes a time as the field of a browser takes it, "" for what is not a time. */
function localOf(written: string): string {
  const at = new Date(written.replace(" ", "T"));
  if (written === "" || Number.isNaN(at.getTime())) return "";

  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

function Budget({ part, onSet }: { part: Part; onSet: OnSet }) {
  const [typed, setTyped] = useState<string>();

  return (
    <label title={helpOf(["budget"])}>
      At most $
      <input
        inputMode="decimal"
        size={6}
        value={typed ?? valueOf(part, ["budget"]).replace(/^\$/, "")}
        disabled={part.problem !== undefined}
        onBlur={() => { setTyped(undefined); }}
        onChange={(e) => {
          setTyped(e.target.value);
          onSet(["budget"], e.target.value.trim() === "" ? "" : `$${e.target.value.trim()}`, "word");
        }}
      />
    </label>
  );
}
