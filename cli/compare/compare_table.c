#include "cli/compare/compare_table.h"

#include "cli/compare/significance.h"
#include "cli/results/items.h"
#include "common/metric.h"

#include <math.h>

#define LEAST_P 1e-16 /* as on the page */

enum {
    ONLY_LISTED = 20, /* names of layers that one training alone has */
    FEW_CAPTURES = 3, /* tell little of how captures differ */
};

static const char *heading_of(const pp_compared *v)
{
    pp_metric metric;
    if (pp_metric_from_name(v->quantity, &metric) == 0)
        return pp_metric_get(metric)->spec_name;
    return strcmp(v->quantity, "busy_ms_per_step") == 0 ? "busy ms"
           : strcmp(v->quantity, "ms_per_step") == 0    ? "ms/step"
                                                        : "whole step";
}

/* Shares are percent; of large amounts four digits are kept. */
static void print_number(FILE *to, double value, bool sign, int places, double scale, bool metric)
{
    char text[40];
    const double shown = value * scale;
    const int digits = metric ? 1 : 3;
    if (isnan(value))
        (void)snprintf(text, sizeof text, "-");
    else if (fabs(shown) >= 1e5)
        (void)snprintf(text, sizeof text, sign ? "%+.4g" : "%.4g", shown);
    else
        (void)snprintf(text, sizeof text, sign ? "%+.*f" : "%.*f", digits, shown);
    (void)fprintf(to, " %*s", places, text);
}

static void print_value(FILE *to, const pp_compared *v)
{
    const bool metric = strcmp(v->unit, "ms") != 0;
    (void)fprintf(to, "  %c %-12s", v->marked ? '*' : ' ', heading_of(v));
    print_number(to, v->value, false, 11, v->shown, metric);
    print_number(to, v->other, false, 11, v->shown, metric);
    print_number(to, v->difference, true, 11, v->shown, metric);
    print_number(to, v->difference_error, false, 10, v->shown, metric);
    if (isnan(v->z))
        (void)fprintf(to, " %9s", "-");
    else
        (void)fprintf(to, " %9.1f", v->z);
    (void)fputc('\n', to);
}

static bool is_marked(const pp_compared_item *item)
{
    for (size_t i = 0; i < item->n; i++)
        if (item->values[i].marked)
            return true;
    return false;
}

/* Whether of a value of it more can be said than that it differs. */
static bool is_judged(const pp_compared_item *item)
{
    for (size_t i = 0; i < item->n; i++)
        if (!isnan(item->values[i].z))
            return true;
    return false;
}

/* Values of two trainings that have nothing in common say little, and that has to be said. */
static void print_strangers(FILE *to, const pp_comparison *c, size_t gpu)
{
    bool theirs[2] = {false, false};
    const pp_compared_gpu *g = &c->gpus[gpu];
    for (size_t i = 0; i < c->n_items; i++) {
        const pp_compared_item *item = &c->items[i];
        if (item->gpu != gpu || !pp_item_is_layer(item->item ? item->item : item->other))
            continue;
        if (item->item && item->other)
            return;
        theirs[item->other != NULL] = true;
    }
    if (theirs[0] && theirs[1])
        (void)fputs("no layer is in both: these are different trainings, or another model\n", to);
    if (g->unknown[0] != g->unknown[1])
        (void)fprintf(to,
                      "the GPU's model is not known of %s: whether both are alike is not, either\n",
                      g->unknown[0] ? c->training->name : c->other->name);
}

static void print_name(FILE *to, const json_t *item)
{
    const char *phase = pp_item_phase(item);
    (void)fprintf(to, "%s%s%s", pp_item_name(item), *phase ? " " : "", phase);
}

static void print_items(FILE *to, const pp_comparison *c, size_t gpu, bool all)
{
    size_t silent = 0;
    for (size_t i = 0; i < c->n_items; i++) {
        const pp_compared_item *item = &c->items[i];
        if (item->gpu != gpu || !item->item || !item->other || item->n == 0)
            continue;
        if (!all && !is_marked(item)) {
            silent += is_judged(item);
            continue;
        }
        print_name(to, item->item);
        (void)fputc('\n', to);
        for (size_t k = 0; k < item->n; k++)
            print_value(to, &item->values[k]);
    }
    if (silent > 0)
        (void)fprintf(to, "no more than noise in %zu other row%s (--all lists %s)\n", silent,
                      silent == 1 ? "" : "s", silent == 1 ? "it" : "them");
}

static void print_only(FILE *to, const pp_comparison *c, size_t gpu, bool ours)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n_items; i++) {
        const pp_compared_item *item = &c->items[i];
        const json_t *one = ours ? item->item : item->other;
        if (item->gpu != gpu || !one || (ours ? item->other : item->item))
            continue;
        if (n == 0)
            (void)fprintf(to, "only in %s: ", ours ? c->training->name : c->other->name);
        if (n < ONLY_LISTED) {
            (void)fputs(n ? ", " : "", to);
            print_name(to, one);
        }
        n++;
    }
    if (n > ONLY_LISTED)
        (void)fprintf(to, " and %zu more", n - ONLY_LISTED);
    if (n > 0)
        (void)fputc('\n', to);
}

/* One line for a reason: how many values have it, and what both say of the first. */
static void print_reasons(FILE *to, const pp_comparison *c, size_t gpu)
{
    const char *done[8];
    size_t n_done = 0;
    for (size_t i = 0; i < c->n_items; i++) {
        for (size_t k = 0; c->items[i].gpu == gpu && k < c->items[i].n; k++) {
            const pp_compared *v = &c->items[i].values[k];
            size_t n = 0;
            bool known = !*v->reason || !isnan(v->difference);
            for (size_t d = 0; d < n_done; d++)
                known |= done[d] == v->reason;
            if (known || n_done == sizeof done / sizeof *done)
                continue;
            done[n_done++] = v->reason;
            for (size_t a = i; a < c->n_items; a++)
                for (size_t b = 0; c->items[a].gpu == gpu && b < c->items[a].n; b++)
                    n += c->items[a].values[b].reason == v->reason;
            (void)fprintf(to, "not compared: %zu value%s, since %s%s%s%s\n", n, n == 1 ? "" : "s",
                          v->reason, *v->told ? " (" : "", v->told, *v->told ? ")" : "");
        }
    }
}

static void print_gpus(FILE *to, const pp_compared_gpu *g)
{
    const char *a = g->gpu ? g->gpu : "-", *b = g->other ? g->other : "-";
    if (strcmp(a, b) == 0)
        (void)fprintf(to, "\n%s\n", *a ? a : "no GPU");
    else
        (void)fprintf(to, "\n%s, other %s\n", *a ? a : "no GPU", *b ? b : "no GPU");
    if (*g->unlike)
        (void)fprintf(to, "nothing is compared: %s (%s; %s)\n", g->unlike, g->chips[0],
                      g->chips[1]);
}

/* How sure times are is by how captures differ, which few of them do not say well. */
static void print_captures(FILE *to, const pp_compared_gpu *g)
{
    if (g->least < 1 || g->least > FEW_CAPTURES)
        return;
    (void)fprintf(to, "captures: %lld, other %lld; ", g->captures[0], g->captures[1]);
    (void)fputs(
        g->least == 1
            ? "how captures differ a single one does not say, so some marks may be chance\n"
            : "so few say little of how captures differ, so only large differences are told\n",
        to);
}

static void print_columns(FILE *to, const pp_compared_gpu *g)
{
    (void)fprintf(to, "%-16s %11s %11s %11s %11s %9s\n", "", "this", "other", "difference", "±",
                  "z");
    if (g->step.quantity)
        print_value(to, &g->step);
}

static void print_step(FILE *to, const pp_compared_gpu *g)
{
    const pp_compared *s = &g->step;
    if (!s->quantity) {
        (void)fputs("whole step: its time is not known of both\n", to);
        return;
    }
    (void)fprintf(to, "whole step%s: ", strncmp(s->quantity, "marked", 6) == 0 ? " (marked)" : "");
    if (isnan(s->difference)) {
        (void)fprintf(to, "not compared: %s\n", s->reason);
        return;
    }
    (void)fprintf(to, "%+.3f", s->difference);
    if (!isnan(s->difference_error))
        (void)fprintf(to, " ± %.3f", s->difference_error);
    (void)fprintf(to, " ms, %+.1f %%", 100 * s->difference / s->other);
    if (isnan(s->z))
        (void)fprintf(to, "; %s\n", s->reason);
    else
        (void)fprintf(
            to, s->p < LEAST_P ? "\n  z %.1f, p < %.0e: %s\n" : "\n  z %.1f, p %.2g: %s\n", s->z,
            fmax(s->p, LEAST_P), s->marked ? "more than noise" : "no more than noise");
}

void pp_compare_table_print(FILE *to, const pp_comparison *c, bool all)
{
    (void)fprintf(to,
                  "%s compared with %s: %zu of %zu values differ by more than noise\n"
                  "(*, by Holm's procedure: of pairs of equal trainings at most %.0f %% have one;\n"
                  " another clock of the GPU, node or data makes a difference, too)\n",
                  c->training->name, c->other->name, c->marked, c->compared,
                  100 * PP_SIGNIFICANCE_LEVEL);
    for (size_t i = 0; i < c->n_gpus; i++) {
        print_gpus(to, &c->gpus[i]);
        print_captures(to, &c->gpus[i]);
        if (c->gpus[i].gpu && c->gpus[i].other)
            print_strangers(to, c, i);
        if (c->gpus[i].gpu && c->gpus[i].other && !*c->gpus[i].unlike)
            print_columns(to, &c->gpus[i]);
        if (!*c->gpus[i].unlike)
            print_items(to, c, i, all);
        print_only(to, c, i, true);
        print_only(to, c, i, false);
        print_reasons(to, c, i);
    }
    (void)fputc('\n', to);
    for (size_t i = 0; i < c->n_gpus; i++) {
        if (c->gpus[i].gpu && c->gpus[i].other)
            print_step(to, &c->gpus[i]);
    }
}
