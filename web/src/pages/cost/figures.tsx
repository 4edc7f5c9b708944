import { dollars } from "../../ui/format";
import styles from "./cost.module.css";

/** GPU-hours and node-hours; few of them with a digit more. */
export function hours(seconds: number): string {
  const h = seconds / 3600;
  const digits = h < 10 ? 2 : 1;

  return h.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

export function kwh(energy: number): string {
  return energy.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
}

export function percent(share: number): string {
  return `${Math.round(100 * share)} %`;
}

/** signed writes money of which a negative amount was lost. */
export function signed(amount: number): string {
  return amount < 0 ? `−${dollars(-amount)}` : dollars(amount);
}

/** Money is an amount; nothing is unknown, not free, where the server has no tariff. */
export function Money({ amount, noTariff }: { amount: number; noTariff: boolean | undefined }) {
  return noTariff && amount === 0 ? <span className="faint">unknown</span> : <>{dollars(amount)}</>;
}

/** CSV is a link that downloads a table. */
export function CSV({ href, name, of }: { href: string; name: string; of?: string }) {
  return <a className={styles.csv} href={href} download={`${name}.csv`}>{of ? `CSV ${of}` : "Download CSV"}</a>;
}

/** Share is a part of a whole as a thin bar. */
export function Share({ of, label }: { of: number; label: string }) {
  return <meter className={styles.share} min={0} max={1} value={Math.min(1, of)} aria-label={label} />;
}
