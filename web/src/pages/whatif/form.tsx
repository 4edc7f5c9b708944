import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { policies } from "../../api/queries/admin";
import { names, parsePolicy, pricesProblem, writePolicy, type Change } from "./change";
import styles from "./whatif.module.css";

const loads: { value: string; name: string }[] = [
  { value: "", name: "nobody submits anything more" },
  { value: "0.5", name: "half as many jobs as in the last day" },
  { value: "1", name: "as many as in the last day" },
  { value: "1.5", name: "1.5 times as many" },
  { value: "2", name: "twice as many" },
  { value: "3", name: "three times as many" },
  { value: "5", name: "five times as many" },
];

const nodesForm = /^\s*(\d+)x(.+)x(\d+)\s*$/;

/** ChangeForm is what would be changed. Nothing is simulated before it is asked for. */
export function ChangeForm({ of, onAsk }: { of: Change; onAsk: (c: Change) => void }) {
  const [draft, setDraft] = useState(of);
  const set = (part: Partial<Change>) => { setDraft((d) => ({ ...d, ...part })); };
  const priceProblem = pricesProblem(draft.prices);
  const changed = names.some((n) => draft[n] !== "");

  return (
    <form
      className={styles.form}
      aria-label="What changes"
      onSubmit={(e) => {
        e.preventDefault();
        if (priceProblem === "") onAsk(draft);
      }}
    >
      <Nodes value={draft.nodes} onChange={(nodes) => { set({ nodes }); }} />
      <Policy value={draft.policy} onChange={(policy) => { set({ policy }); }} />
      <fieldset>
        <legend>Prices</legend>
        <label>
          <span className="faint">Dollars for a GPU and hour</span>
          <input
            value={draft.prices}
            placeholder="A100=2.40, V100=1.10"
            aria-invalid={priceProblem !== ""}
            aria-describedby="price-problem"
            onChange={(e) => { set({ prices: e.target.value }); }}
          />
        </label>
        <span id="price-problem" className={styles.wrong}>{priceProblem}</span>
      </fieldset>
      <fieldset>
        <legend>Load of the next day</legend>
        <select aria-label="Load" value={draft.load} onChange={(e) => { set({ load: e.target.value }); }}>
          {loads.map((l) => <option key={l.value} value={l.value}>{l.name}</option>)}
        </select>
      </fieldset>
      <fieldset>
        <legend>Jobs of unknown run time</legend>
        <label>
          <span className="faint">are taken to run</span>
          <input value={draft.assume} placeholder="1h" onChange={(e) => { set({ assume: e.target.value.trim() }); }} />
        </label>
      </fieldset>
      <p className={styles.buttons}>
        <button className="primary">Simulate</button>
        {changed && (
          <button
            type="button"
            onClick={() => {
              const none: Change = { nodes: "", policy: "", prices: "", load: "", assume: "" };
              setDraft(none);
              onAsk(none);
            }}
          >
            Change nothing
          </button>
        )}
      </p>
    </form>
  );
}

/** Nodes that are added: one kind in fields, or several as text. */
function Nodes({ value, onChange }: { value: string; onChange: (v: string) => void }) {
  const [, count = "", gpu = "A100:80GB", each = "8"] = nodesForm.exec(value) ?? [];
  const several = value.includes(",");
  const write = (nodes: string, model: string, n: string) => {
    onChange(nodes === "" || nodes === "0" ? "" : `${nodes}x${model.trim()}x${n}`);
  };
  const [kind, setKind] = useState({ gpu, each }); // kept while no node is added

  if (several) {
    return (
      <fieldset>
        <legend>Nodes to add</legend>
        <input aria-label="Nodes to add" value={value} onChange={(e) => { onChange(e.target.value); }} />
      </fieldset>
    );
  }

  return (
    <fieldset>
      <legend>Nodes to add</legend>
      <div className={styles.nodes}>
        <label>
          <span className="faint">Nodes</span>
          <input
            type="number"
            min={0}
            max={1000}
            value={count}
            placeholder="0"
            onChange={(e) => { write(e.target.value, kind.gpu, kind.each); }}
          />
        </label>
        <label>
          <span className="faint">with GPU</span>
          <input
            value={kind.gpu}
            onChange={(e) => {
              setKind({ ...kind, gpu: e.target.value });
              write(count, e.target.value, kind.each);
            }}
          />
        </label>
        <label>
          <span className="faint">each</span>
          <input
            type="number"
            min={1}
            max={64}
            value={kind.each}
            onChange={(e) => {
              setKind({ ...kind, each: e.target.value });
              write(count, kind.gpu, e.target.value);
            }}
          />
        </label>
      </div>
    </fieldset>
  );
}

/** Policy is another policy, with its parameters. */
function Policy({ value, onChange }: { value: string; onChange: (v: string) => void }) {
  const list = useQuery(policies);
  const current = list.data?.policy ?? "";
  const chosen = parsePolicy(value);
  const entry = list.data?.policies.find((p) => p.name === chosen.name);
  const own = entry?.params.filter((p) => !p.common || chosen.values[p.name] !== undefined) ?? [];

  return (
    <fieldset>
      <legend>Policy</legend>
      <select
        aria-label="Policy"
        value={chosen.name}
        onChange={(e) => { onChange(e.target.value); }}
      >
        <option value="">as it is: {current.split(":")[0]}</option>
        {chosen.name !== "" && !entry && <option value={chosen.name}>{chosen.name}</option>}
        {list.data?.policies.map((p) => <option key={p.name} value={p.name}>{p.name}</option>)}
      </select>
      {entry && <p className="faint">{entry.rule}</p>}
      {own.map((p) => (
        <label key={p.name} title={p.help}>
          <span className="faint">{p.name}</span>
          <input
            value={chosen.values[p.name] ?? ""}
            placeholder={p.standard}
            onChange={(e) => {
              onChange(writePolicy({ ...chosen, values: { ...chosen.values, [p.name]: e.target.value } }));
            }}
          />
        </label>
      ))}
    </fieldset>
  );
}
