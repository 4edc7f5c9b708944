import { Link } from "../route/link";
import { percent } from "./format";
import styles from "./sharebar.module.css";
import { filledOf, freeOf, sharersOf, titleOf, troubleOf, wordsOf, type Share } from "./shares";

/** ShareBar is a GPU cut by the shares of its jobs: each part is filled by how much of it the job uses. */
export function ShareBar({ shares, own }: { shares: Share[]; own?: string }) {
  const free = freeOf(shares);

  return (
    <span className={styles.bar} role="img" aria-label={sharersOf(shares)}>
      {shares.map((s) => (
        <span
          key={s.job}
          className={styles.part}
          data-trouble={troubleOf(s) !== ""}
          data-own={s.job === own}
          title={wordsOf(s)}
          style={{ flexGrow: s.share }}
        >
          <span style={{ inlineSize: `${filledOf(s) * 100}%` }} />
        </span>
      ))}
      {free > 0 && <span className={styles.free} title={`${percent(free)} free`} style={{ flexGrow: free }} />}
    </span>
  );
}

/** Sharers lists jobs that share a GPU, in the order of the bar, and what is free of it unless that is said beside. */
export function Sharers({ shares, free = 0 }: { shares: Share[]; free?: number }) {
  return (
    <ul className={styles.list}>
      {shares.map((s) => (
        <li key={s.job}>
          <Link to={`job/${s.job}`}><bdi>{titleOf(s)}</bdi></Link>{" "}
          <span className="faint"><bdi>{s.owner}</bdi></span>{" "}
          <span className={styles.figures}>{percent(s.share)}{s.use ? `, gets ${percent(s.use.got)}` : ""}</span>
          {troubleOf(s) !== "" && <span className={styles.trouble}>, {troubleOf(s)}</span>}
        </li>
      ))}
      {free > 0 && <li className="faint">{percent(free)} free</li>}
    </ul>
  );
}
