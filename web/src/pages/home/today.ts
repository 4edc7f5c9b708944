import { useMemo } from "react";

/** useMidnight returns when today began, here. */
export function useMidnight(now: number): string {
  const day = new Date(now).setHours(0, 0, 0, 0);

  return useMemo(() => new Date(day).toISOString(), [day]);
}
