#include "cli/tables/html.h"

#include "cli/results/items.h"
#include "cli/tables/headline.h"
#include "cli/tables/html_text.h"
#include "cli/tables/table_copies.h"
#include "cli/tables/table_gpu.h"
#include "cli/tables/table_layout.h"
#include "cli/tables/table_pattern.h"
#include "cli/tables/table_quality.h"
#include "cli/tables/table_ranks.h"
#include "cli/tables/table_waits.h"
#include "common/metric.h"

#include <stdlib.h>

/* Nothing is fetched, and nothing runs: also where a text were not escaped. */
static const char head[] =
    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
    "style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<meta name=\"color-scheme\" content=\"light dark\">\n"
    "<title>PrecisionProbe: where the GPU goes</title>\n<style>\n"
    ":root{color-scheme:light dark;--text:#1a1a1a;--back:#fff;--quiet:#595959;--line:#c8c8c8;"
    "--band:#f3f5f8}\n"
    "@media(prefers-color-scheme:dark){:root{--text:#e8e8e8;--back:#16181c;--quiet:#a8adb5;"
    "--line:#454a52;--band:#1f2329}}\n"
    "body{color:var(--text);background:var(--back);font:15px/1.45 "
    "system-ui,sans-serif;margin:2em}\n"
    "h1{font-size:1.5em}h2{font-size:1.25em}p.headline{font-size:1.15em;font-weight:600}\n"
    "div.table{overflow-x:auto}\n"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums}\n"
    "caption{text-align:left;color:var(--quiet);padding:.3em 0}\n"
    "th,td{padding:.2em .6em;border-bottom:1px solid var(--line);white-space:nowrap}\n"
    "thead th{position:sticky;top:0;background:var(--back);text-align:right}\n"
    "thead th.text,tbody th,td.text{text-align:left}tbody th{font-weight:400;"
    "font-family:ui-monospace,monospace}\n"
    "td{text-align:right}tbody tr:nth-child(even){background:var(--band)}\n"
    ".quiet{color:var(--quiet)}pre{white-space:pre-wrap}\n"
    "</style>\n</head>\n<body>\n<main>\n<h1>Where the GPU goes</h1>\n";

static const char tail[] = "</main>\n</body>\n</html>\n";

/* ---- cells ---- */

static const json_t *field(const json_t *item, const char *key)
{
    return json_object_get(item, key);
}

static void cell_unknown(FILE *to, const char *why)
{
    (void)fputs("<td class=\"quiet\"", to);
    if (*why) {
        (void)fputs(" title=\"", to);
        pp_html_text(to, why);
        (void)fputc('"', to);
    }
    (void)fputs(">not known</td>", to);
}

static void cell_empty(FILE *to)
{
    (void)fputs("<td></td>", to);
}

/* A number times `scale` with so many digits behind the point, and `unit` behind it. */
static void cell_number(FILE *to, const json_t *number, double scale, int digits, const char *unit)
{
    if (!json_is_number(number)) {
        cell_unknown(to, "");
        return;
    }
    (void)fputs("<td>", to);
    pp_html_number(to, number, scale, digits);
    (void)fprintf(to, "%s</td>", unit);
}

/* Of what marks may have lengthened: it is at most what follows. */
static void at_most(FILE *to, const json_t *item)
{
    if (pp_item_is_lengthened(item))
        (void)fprintf(to,
                      "<abbr title=\"at most, with what marks may have added; at least %.3f ms\">"
                      "≤</abbr>",
                      json_number_value(field(item, "leastMillisecondsPerStep")));
}

static void cell_time(FILE *to, const json_t *item)
{
    (void)fputs("<td>", to);
    at_most(to, item);
    pp_html_number(to, field(item, "millisecondsPerStep"), 1, 3);
    (void)fputs("</td>", to);
}

static void cell_metric(FILE *to, const json_t *value, double scale)
{
    const json_t *mean = field(value, "mean"), *group = field(value, "groupMean");
    if (json_is_number(mean)) {
        (void)fputs("<td>", to);
        pp_html_number(to, mean, scale, 1);
        (void)fputs("&nbsp;±&nbsp;", to);
        pp_html_number(to, field(value, "standardError"), scale, 1);
        (void)fputs("</td>", to);
    } else if (json_is_number(group)) {
        (void)fputs("<td class=\"quiet\" title=\"known only together: ", to);
        pp_html_text(to, pp_results_text(value, "group"));
        (void)fputs("\">group ", to);
        pp_html_number(to, group, scale, 1);
        (void)fputs("</td>", to);
    } else {
        cell_unknown(to, pp_results_text(value, "reason"));
    }
}

static void cell_bound(FILE *to, const json_t *item)
{
    const char *bound = pp_results_text(item, "bound");
    if (!*bound) {
        cell_unknown(to, "");
        return;
    }
    (void)fputs("<td class=\"text\">", to);
    pp_html_text(to, pp_bound_phrase(bound));
    const json_t *likely = field(item, "boundLikely");
    (void)fputs(" (", to);
    if (json_number_value(likely) >= PP_ITEM_ALL_BUT_SURE) {
        pp_html_data(to, likely);
        (void)fputs("more than 99.9</data>", to);
    } else {
        pp_html_number(to, likely, 100, 1);
    }
    (void)fputs(" % sure)</td>", to);
}

static void cell_text(FILE *to, const char *text)
{
    (void)fputs("<td class=\"text\">", to);
    pp_html_text(to, text);
    (void)fputs("</td>", to);
}

/* ---- rows ---- */

static void write_calls(FILE *to, const json_t *item, double steps)
{
    const json_t *calls = field(item, "calls");
    if (!pp_item_is_layer(item))
        cell_empty(to);
    else
        cell_number(to, steps > 0 ? calls : NULL, steps > 0 ? 1 / steps : 0, 2, "");
}

static void write_times(FILE *to, const json_t *item)
{
    if (strcmp(pp_results_text(item, "kind"), "job") == 0) {
        for (int i = 0; i < 4; i++)
            cell_empty(to);
        return;
    }
    cell_time(to, item);
    cell_number(to, field(item, "share"), 100, 1, "&nbsp;%");
    const json_t *busy = field(item, "busyMillisecondsPerStep"), *idle = field(item, "idleShare");
    const char *why = pp_results_text(item, "busyReason");
    if (json_is_number(busy))
        cell_number(to, busy, 1, 3, "");
    else
        cell_unknown(to, why);
    if (json_is_number(idle)) {
        (void)fputs("<td>", to);
        at_most(to, item);
        pp_html_number(to, idle, 100, 1);
        (void)fputs("&nbsp;%</td>", to);
    } else {
        cell_unknown(to, why);
    }
}

/* One that stands for what is in it says so, and why. */
static void cell_type(FILE *to, const json_t *item)
{
    const char *why = pp_results_text(item, "wholeReason");
    (void)fputs("<td class=\"text\">", to);
    pp_html_text(to, pp_results_text(item, "type"));
    if (*why) {
        (void)fputs(" <small>told whole: ", to);
        pp_html_text(to, why);
        (void)fputs("</small>", to);
    }
    (void)fputs("</td>", to);
}

static void write_item(FILE *to, const pp_table_layout *l, const json_t *item, double steps)
{
    pp_metric metric;
    (void)fputs("<tr><th scope=\"row\">", to);
    pp_html_text(to, pp_item_name(item));
    (void)fputs("</th>", to);
    cell_type(to, item);
    cell_text(to, pp_item_phase(item));
    write_calls(to, item, steps);
    write_times(to, item);
    for (int i = 0; (metric = pp_metric_in_column(i)) < PP_METRIC_COUNT; i++) {
        const pp_metric_info *info = pp_metric_get(metric);
        if (l->metrics[metric])
            cell_metric(to, pp_json_get(item, "metrics", info->spec_name, NULL), info->shown);
    }
    if (l->memory) {
        cell_number(to, field(item, "memoryPeakBytes"), 1.0 / (1 << 20), 1, "");
        cell_number(to, field(item, "memoryLiveBytes"), 1.0 / (1 << 20), 1, "");
    }
    if (l->bounds)
        cell_bound(to, item);
    (void)fputs("</tr>\n", to);
}

static void write_columns(FILE *to, const pp_table_layout *l)
{
    pp_metric metric;
    (void)fputs("<thead><tr><th scope=\"col\" class=\"text\">layer</th><th scope=\"col\" "
                "class=\"text\">type</th><th scope=\"col\" class=\"text\">phase</th><th "
                "scope=\"col\">calls a step</th><th scope=\"col\">ms a step</th><th "
                "scope=\"col\">share</th><th scope=\"col\">busy ms</th><th "
                "scope=\"col\">idle</th>",
                to);
    for (int i = 0; (metric = pp_metric_in_column(i)) < PP_METRIC_COUNT; i++) {
        if (l->metrics[metric])
            (void)fprintf(to, "<th scope=\"col\">%s, %%</th>", pp_metric_get(metric)->spec_name);
    }
    if (l->memory)
        (void)fputs("<th scope=\"col\">peak MiB</th><th scope=\"col\">live MiB</th>", to);
    if (l->bounds)
        (void)fputs("<th scope=\"col\" class=\"text\">bound by</th>", to);
    (void)fputs("</tr></thead>\n<tbody>\n", to);
}

/* Rows of nothing are counted, as in the table. */
static void write_rows(FILE *to, const json_t *gpu)
{
    const pp_table_layout l = pp_table_lay_out(gpu, 0);
    const double steps = json_number_value(field(gpu, "steps"));
    size_t i, nothing = 0;
    json_t *item;
    (void)fputs("<div class=\"table\" tabindex=\"0\" role=\"region\" aria-label=\"layers\">\n"
                "<table>\n<caption>Values are means ± standard error.</caption>\n",
                to);
    write_columns(to, &l);
    json_array_foreach(field(gpu, "items"), i, item)
    {
        if (pp_item_is_nothing(item))
            nothing++;
        else
            write_item(to, &l, item, steps);
    }
    (void)fputs("</tbody>\n</table>\n</div>\n", to);
    if (nothing > 0)
        (void)fprintf(to,
                      "<p>%zu rows of layers that take less than a microsecond of a step are not "
                      "listed.</p>\n",
                      nothing);
}

/* ---- texts that the table has, too ---- */

typedef struct lines {
    char *text;
    size_t length;
    FILE *to;
} lines;

static FILE *lines_begin(lines *l)
{
    *l = (lines){0};
    l->to = open_memstream(&l->text, &l->length);
    return l->to;
}

/* In an element, unless there are none. */
static void lines_end(lines *l, FILE *to, const char *begin, const char *end)
{
    if (l->to && fclose(l->to) == 0 && l->length > 0) {
        (void)fputs(begin, to);
        pp_html_text(to, l->text + strspn(l->text, "\n"));
        (void)fputs(end, to);
    }
    free(l->text);
}

static void write_gpu(FILE *to, const json_t *gpu, bool layers)
{
    lines l;
    if (lines_begin(&l))
        pp_table_gpu_print(l.to, gpu);
    lines_end(&l, to, "<p>", "</p>\n");
    if (lines_begin(&l))
        pp_headline_print(l.to, gpu);
    lines_end(&l, to, "<p class=\"headline\">", "</p>\n");
    write_rows(to, gpu);
    if (lines_begin(&l))
        pp_table_quality_print(l.to, gpu, layers);
    lines_end(&l, to, "<pre>", "</pre>\n");
}

static void write_training(FILE *to, const pp_training *t)
{
    const char *why = pp_results_unsampled(t->results);
    const bool layers = strcmp(pp_results_text(t->results, "method"), "Job") != 0;
    size_t i;
    json_t *gpu;
    lines l;
    (void)fputs("<section>\n<h2>", to);
    pp_html_text(to, t->name);
    (void)fputs("</h2>\n", to);
    if (why) {
        (void)fputs("<p>No step was sampled. ", to);
        pp_html_text(to, why);
        (void)fputs("</p>\n", to);
    }
    json_array_foreach(field(t->results, "gpus"), i, gpu)
    {
        if (!why || *pp_results_text(gpu, "gpu"))
            write_gpu(to, gpu, layers);
    }
    if (lines_begin(&l)) {
        pp_table_pattern_print(l.to, t->results);
        pp_table_copies_print(l.to, t->results);
        pp_table_waits_print(l.to, t->results);
        pp_table_ranks_print(l.to, t->results);
    }
    lines_end(&l, to, "<pre>", "</pre>\n");
    (void)fputs("</section>\n", to);
}

int pp_html_write(const pp_training *trainings, size_t n, FILE *to, pp_error *err)
{
    (void)fputs(head, to);
    for (size_t i = 0; i < n; i++)
        write_training(to, &trainings[i]);
    (void)fputs(tail, to);
    return ferror(to) ? pp_error_errno(err, "writing the page") : 0;
}
