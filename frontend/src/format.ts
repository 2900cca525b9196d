/** Figures as people read them. */

import type { Maybe } from "./types";

export const UNKNOWN = "–";

/** A number in few characters: 1234567 is 1.23 M. */
export function short(value: Maybe<number> | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return UNKNOWN;
  const size = Math.abs(value);
  const digits = (v: number) => (Math.abs(v) >= 100 ? v.toFixed(0) : Math.abs(v) >= 10 ? v.toFixed(1) : v.toFixed(2));
  if (size >= 1e9) return `${digits(value / 1e9)} G`;
  if (size >= 1e6) return `${digits(value / 1e6)} M`;
  if (size >= 1e4) return `${digits(value / 1e3)} k`;
  if (size >= 100 || Number.isInteger(value)) return Math.round(value).toLocaleString("en");
  return digits(value);
}

export function perSecond(value: Maybe<number> | undefined): string {
  return value === null || value === undefined ? UNKNOWN : `${short(value)}/s`;
}

export function share(value: Maybe<number> | undefined): string {
  if (value === null || value === undefined) return UNKNOWN;
  const percent = value * 100;
  if (percent > 0 && percent < 0.1) return "< 0.1 %";
  return `${percent > 0 && percent < 1 ? percent.toFixed(1) : percent.toFixed(0)} %`;
}

export function millis(value: Maybe<number> | undefined): string {
  if (value === null || value === undefined) return UNKNOWN;
  if (value === 0) return "0";
  if (value >= 10_000) return `${(value / 1000).toFixed(1)} s`;
  if (value >= 1000) return `${(value / 1000).toFixed(2)} s`;
  return value >= 10 ? `${value.toFixed(0)} ms` : `${value.toFixed(1)} ms`;
}

export function bytes(value: Maybe<number> | undefined): string {
  if (value === null || value === undefined) return UNKNOWN;
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]] as const) {
    if (value >= size) return `${(value / size).toFixed(value >= 100 * size ? 0 : 1)} ${unit}`;
  }
  return `${value} B`;
}

/** How much one value is above another; both as small as each other is no difference. */
export function change(value: number, other: number): string {
  const percent = ((value - other) / other) * 100;
  return Math.abs(percent) < 0.5 ? "0 %" : `${percent > 0 ? "+" : ""}${percent.toFixed(0)} %`;
}

/** A name that is not too long to read. */
export function cut(name: string, most: number): string {
  const letters = [...name];
  return letters.length > most ? `${letters.slice(0, most - 1).join("")}…` : name;
}

/** A name of a user's among words where no element can hold it: not too long, in its own direction of writing. */
export function isolated(name: string, most = 60): string {
  return `\u2068${cut(name, most)}\u2069`;
}

/** Seconds as a clock: 1:05, 2:03:04. */
export function clock(seconds: Maybe<number> | undefined): string {
  if (seconds === null || seconds === undefined) return UNKNOWN;
  const whole = Math.max(0, Math.floor(seconds));
  const two = (n: number) => String(n).padStart(2, "0");
  const [h, m, s] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  return h > 0 ? `${h}:${two(m)}:${two(s)}` : `${m}:${two(s)}`;
}

export function moment(seconds: number): string {
  return new Date(seconds * 1000).toISOString().slice(0, 19).replace("T", " ");
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
}
