// Whether a difference is more than noise: p of a difference over its standard error, of times by Student's t, and Holm's procedure.

const TINY = 1e-300;
const PRECISE = 1e-15;

/** A continued fraction by Lentz' method; step(n) gives [a, b] of its n-th part. */
function fraction(first, step) {
  let value = first || TINY, c = value, d = 0;
  for (let n = 1; n < 500; n += 1) {
    const [a, b] = step(n);
    d = 1 / (b + a * d || TINY);
    c = b + a / c || TINY;
    value *= c * d;
    if (Math.abs(c * d - 1) < PRECISE) break;
  }
  return value;
}

/** erfc(x) of x >= 0: by its series near 0, else by its continued fraction. */
function complementaryError(x) {
  if (x > 2) return Math.exp(-x * x) / Math.sqrt(Math.PI) / fraction(x, (n) => [n / 2, x]);
  let term = x, sum = x;
  for (let n = 1; Math.abs(term) > PRECISE * Math.abs(sum) && n < 200; n += 1) {
    term *= (-x * x) / n;
    sum += term / (2 * n + 1);
  }
  return 1 - (2 / Math.sqrt(Math.PI)) * sum;
}

/** Of both sides of the standard normal distribution. */
export const normalP = (z) => complementaryError(Math.abs(z) / Math.SQRT2);

/** ln of the gamma function of x > 0, by Stirling's series, which is exact enough from 10 on (DLMF 5.11.1). */
function lnGamma(x) {
  let shift = 0, at = x;
  for (; at < 10; at += 1) shift += Math.log(at);
  const square = 1 / (at * at);
  const series = (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * (1 / 1680 - square / 1188)))) / at;
  return (at - 0.5) * Math.log(at) - at + 0.5 * Math.log(2 * Math.PI) + series - shift;
}

/** The regularized incomplete beta function I_x(a, b), by its continued fraction (DLMF 8.17.22). */
function betaPart(x, a, b) {
  if (x <= 0 || x >= 1) return x <= 0 ? 0 : 1;
  if (x >= (a + 1) / (a + b + 2)) return 1 - betaPart(1 - x, b, a);
  const factor = Math.exp(a * Math.log(x) + b * Math.log1p(-x) + lnGamma(a + b) - lnGamma(a) - lnGamma(b));
  return factor / a / fraction(1, (n) => {
    const m = Math.floor(n / 2);
    return [n % 2 === 0 ? (m * (b - m) * x) / ((a + 2 * m - 1) * (a + 2 * m))
      : (-(a + m) * (a + b + m) * x) / ((a + 2 * m) * (a + 2 * m + 1)), 1];
  });
}

/** Of both sides of Student's t of so many degrees of freedom; without a number, of the standard normal distribution. */
export const studentP = (t, freedom) => (Number.isFinite(freedom) ? betaPart(freedom / (freedom + t * t), freedom / 2, 0.5) : normalP(t));

/** Degrees of freedom of a difference, by Welch and Satterthwaite; of two {stderr, freedom}, where null is infinite. */
export function welch(a, b) {
  const part = (one) => (one.freedom ? one.stderr ** 4 / one.freedom : 0);
  const both = part(a) + part(b);
  return both > 0 ? (a.stderr ** 2 + b.stderr ** 2) ** 2 / both : Infinity;
}

/** Holm's procedure: which of these p are more than noise, so that of sets of values that do not differ at most a share of `level` has any. */
export function holm(ps, level) {
  const ordered = ps.map((p, n) => [p, n]).sort((a, b) => a[0] - b[0]);
  const marked = ps.map(() => false);
  for (const [rank, [p, n]] of ordered.entries()) {
    if (p > level / (ps.length - rank)) break;
    marked[n] = true;
  }
  return marked;
}
