import { Link } from "../../route/link";
import { useQueryString } from "../../route/route";
import { useUser } from "../../shell/session";
import styles from "./cost.module.css";
import { isoDay, periods, type Period } from "./period";
import { nameOfKey, shows, type Choice, type Show } from "./scope";

interface Props {
  period: Period | undefined; // undefined if the days in the address are none
  choice: Choice;
  show: Show; // what the bars show
  now: number;
}

/** Controls choose the period, whose cost it is and how it is divided. All of it is in the address. */
export function Controls({ period, choice, show, now }: Props) {
  const { leads, member, role } = useUser();
  const [query, setQuery] = useQueryString();
  const kept = Object.fromEntries([...query].filter(([name]) => !["period", "from", "to"].includes(name)));
  const set = (name: string, value: string) => { setQuery((q) => { q.set(name, value); }); };

  // Whoever does not see everyone sees the projects that they lead, and a viewer those that they are a member of.
  const projects = choice.everyone ? [] : ((role === "viewer" ? member : leads) ?? []);

  const setDay = (name: "from" | "to", value: string) => {
    setQuery((q) => {
      q.delete("period");
      if (period && !q.has("from")) q.set("from", isoDay(period.begin));
      q.set(name, value);
    });
  };

  return (
    <div className={styles.controls}>
      <nav className={styles.periods} aria-label="Period">
        {periods.map((p) => (
          <Link key={p.id} to="cost" query={{ ...kept, period: p.id }} aria-current={p.id === period?.id || undefined}>
            {p.name}
          </Link>
        ))}
      </nav>
      <label>
        From
        <input
          type="date"
          max={isoDay(now)}
          value={query.get("from") ?? (period ? isoDay(period.begin) : "")}
          onChange={(e) => { setDay("from", e.target.value); }}
        />
      </label>
      <label>
        to
        <input
          type="date"
          max={isoDay(now)}
          value={query.get("to") ?? (period ? isoDay(Math.min(period.end - 1, now)) : "")}
          onChange={(e) => { setDay("to", e.target.value); }}
        />
      </label>
      <label>
        Divided
        <select value={choice.by} onChange={(e) => { set("by", e.target.value); }}>
          {Object.entries(nameOfKey).map(([id, name]) => <option key={id} value={id}>{name.toLowerCase()}</option>)}
        </select>
      </label>
      <label>
        Show
        <select value={show} onChange={(e) => { set("show", e.target.value); }}>
          {shows.map((s) => <option key={s.id} value={s.id}>{s.name}</option>)}
        </select>
      </label>
      {projects.length > 0 && (
        <label>
          Of
          <select value={choice.project} onChange={(e) => { set("project", e.target.value); }}>
            <option value="">me</option>
            {projects.map((p) => <option key={p} value={p}>project {p}</option>)}
          </select>
        </label>
      )}
      {!choice.everyone && choice.project === "" && <span className="faint">Your own usage</span>}
      {choice.everyone && ["researcher", "project"].map((key) => {
        const value = query.get(key);

        return value && (
          <button key={key} onClick={() => { set(key, ""); }} aria-label={`Remove the filter ${key} ${value}`}>
            {key} <bdi>{value}</bdi> ×
          </button>
        );
      })}
    </div>
  );
}
