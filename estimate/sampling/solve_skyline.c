/* Cholesky within a skyline. */
#include "common/vector.h"
#include "estimate/sampling/solve_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int pp_skyline_init(pp_skyline *s, size_t n, uint32_t *first, size_t limit, pp_error *err)
{
    *s = (pp_skyline){.n = n, .first = first, .at = malloc((n + 1) * sizeof *s->at)};
    if (!s->at)
        return pp_error_nomem(err);
    for (size_t i = 0; i < n; i++) {
        s->at[i] = s->count - first[i];
        s->count += i - first[i] + 1;
    }
    if (s->count > limit)
        return pp_error_set(err, PP_ERR_TOO_LARGE, "kernels come in too many orders");
    s->values = calloc(s->count + 1, sizeof *s->values);
    return s->values ? 0 : pp_error_nomem(err);
}

void pp_skyline_free(pp_skyline *s)
{
    free(s->first);
    free(s->at);
    free(s->values);
    *s = (pp_skyline){0};
}

bool pp_skyline_factor(pp_skyline *s)
{
    for (size_t i = 0; i < s->n; i++) {
        double *row = s->values + s->at[i];
        for (size_t j = s->first[i]; j < i; j++) {
            const double *other = s->values + s->at[j];
            size_t from = s->first[i] > s->first[j] ? s->first[i] : s->first[j];
            double sum = from < j ? pp_dot(row + from, other + from, j - from) : 0;
            row[j] = (row[j] - sum) / other[j];
        }
        double d = row[i] - pp_dot(row + s->first[i], row + s->first[i], i - s->first[i]);
        if (!(d > 0) || !isfinite(d))
            return false;
        row[i] = sqrt(d);
    }
    return true;
}

void pp_skyline_solve(const pp_skyline *s, double *b)
{
    for (size_t i = 0; i < s->n; i++) {
        const double *row = s->values + s->at[i];
        size_t from = s->first[i];
        b[i] = (b[i] - pp_dot(row + from, b + from, i - from)) / row[i];
    }
    for (size_t i = s->n; i-- > 0;) {
        const double *row = s->values + s->at[i];
        b[i] /= row[i];
        for (size_t j = s->first[i]; j < i; j++)
            b[j] -= row[j] * b[i];
    }
}

void pp_skyline_solve_some(const pp_skyline *s, double *b)
{
    enum { N = PP_SKYLINE_AT_ONCE };
    for (size_t i = 0; i < s->n; i++) {
        const double *row = s->values + s->at[i];
        double left[N];
        memcpy(left, b + i * N, sizeof left);
        for (size_t j = s->first[i]; j < i; j++)
            for (int k = 0; k < N; k++)
                left[k] -= row[j] * b[j * N + (size_t)k];
        for (int k = 0; k < N; k++)
            b[i * N + (size_t)k] = left[k] / row[i];
    }
    for (size_t i = s->n; i-- > 0;) {
        const double *row = s->values + s->at[i];
        double x[N];
        for (int k = 0; k < N; k++)
            x[k] = b[i * N + (size_t)k] /= row[i];
        for (size_t j = s->first[i]; j < i; j++)
            for (int k = 0; k < N; k++)
                b[j * N + (size_t)k] -= row[j] * x[k];
    }
}
