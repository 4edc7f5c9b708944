/** percent writes a share or a relative error; small ones with a digit more. */
export function percent(share: number): string {
  const p = 100 * share;

  return p > 0 && p < 9.95 ? `${p.toFixed(1)} %` : `${Math.round(p).toLocaleString("en-US")} %`;
}
