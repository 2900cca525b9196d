/** Colours that people who see fewer colours tell apart, too (after Okabe, Ito and Tol). */

export const NODE_COLOURS = 10;

/** CSS class of a node's colour; the number is always written beside it. */
export function nodeClass(number: number): string {
  return number < 0 ? "node-none" : `node-${number % NODE_COLOURS}`;
}

/** The value of a CSS variable, for what is drawn on a canvas. */
export function variable(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
