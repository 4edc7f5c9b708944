import type { JobDetail } from "../../api/client";
import { Link } from "../../route/link";
import { Fact } from "../../ui/facts";
import { bytesOf, count, percent, size, time } from "../../ui/format";
import { ShareBar, Sharers } from "../../ui/sharebar";
import { freeOf, memoryOf, modeOf, termsOf, type Share } from "../../ui/shares";
import styles from "./job.module.css";

/** What a job file says of a share. */
interface Asked {
  gpu_share?: number;
  share_class?: Share["class"];
  share_limit?: number;
}

/** ShareFacts are the part of a GPU that a job asks for, what it gets of it, and who has the rest. */
export function ShareFacts({ job: j, now }: { job: JobDetail; now: number }) {
  const held = j.gpu_share;
  if (held) {
    return (
      <>
        <Fact name="GPU share">
          {percent(held.share)} of GPU {held.gpu} of <Link to={`node/${held.node}`}><bdi>{held.node}</bdi></Link>
          {held.memory && <>, up to {size(bytesOf(held.memory))} of its memory</>}
          <div className="faint">{termsOf(held.class, held.limit)}</div>
        </Fact>
        <Fact name="Gets"><Gets share={held} now={now} /></Fact>
        <Fact name="Beside"><Beside share={held} /></Fact>
      </>
    );
  }

  const { resources: asked = {} } = (j.spec ?? {}) as { resources?: Asked };
  if (asked.gpu_share === undefined || asked.gpu_share === 1) return null;

  return <Fact name="GPU share">{termsOf(asked.share_class ?? "normal", asked.share_limit)}</Fact>;
}

function Gets({ share: s, now }: { share: NonNullable<JobDetail["gpu_share"]>; now: number }) {
  const u = s.use;
  if (!u) return <span className="faint">not measured yet</span>;

  return (
    <>
      {percent(u.got)} of the GPU, wants {percent(u.wanted)}; memory {memoryOf(s)}
      <div className="faint">
        {modeOf([s, ...s.beside])}
        {u.served !== undefined && `; it has had ${percent(u.served)} of what it wanted so far`}
      </div>
      {u.short_since && (
        <div className={styles.remark}>It has had less than its share since {time(u.short_since, now)}.</div>
      )}
      {u.bypassed !== undefined && (
        <div className={styles.remark}>
          It is not held to its share: {u.bypassed === 1 ? "1 process uses" : `${u.bypassed} processes use`} the GPU
          without the library that divides it.
        </div>
      )}
      {u.denials !== undefined && (
        <div className={styles.remark}>
          {count(u.denials, "allocation")} refused: it had all the memory that it may have. Raise gpu_memory, or lower
          the batch size.
        </div>
      )}
    </>
  );
}

/** Who has the rest of its GPU. */
function Beside({ share: s }: { share: NonNullable<JobDetail["gpu_share"]> }) {
  // In the order of the page of the node.
  const all = [s, ...s.beside].sort((a, b) => Number(a.job.slice(1)) - Number(b.job.slice(1)));

  return (
    <>
      <ShareBar shares={all} own={s.job} />
      {s.beside.length > 0
        ? <Sharers shares={s.beside} free={freeOf(all)} />
        : <>nobody; {percent(freeOf(all))} of the GPU is free</>}
    </>
  );
}
