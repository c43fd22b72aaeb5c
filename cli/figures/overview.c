#include "cli/figures/overview.h"

#include "cli/figures/svg.h"
#include "cli/formats/figures.h"
#include "common/text.h"

#include <math.h>
#include <string.h>

enum {
    LEFT = 12,
    LABEL = 130,
    PLOT = 620,
    TOP = 84,
    BAR = 14,
    APART = 14,
    BELOW = 30,
    WHOLE = 100,
    TEXT = 400,
    COLOURS = 6,
};

/* As the paper has them, and one that it has not. */
static const pp_metric drawn[] = {PP_METRIC_GPU_UTIL,     PP_METRIC_DRAM_ACTIVE,
                                  PP_METRIC_FP32_ACTIVE,  PP_METRIC_SM_ACTIVE,
                                  PP_METRIC_SM_OCCUPANCY, PP_METRIC_TENSOR_ACTIVE};
enum { DRAWN = sizeof drawn / sizeof *drawn };

static const char *name_of(const pp_figure_job *job)
{
    return *job->workload ? job->workload : job->session;
}

static const char *colour(size_t i)
{
    static const char *const classes[COLOURS] = {"job0", "job1", "job2", "job3", "job4", "job5"};
    return classes[i % COLOURS];
}

static void draw(FILE *to, const pp_figure_job *job, size_t i, pp_metric metric, double y)
{
    const pp_figure_value value = pp_figure_value_of(job->row, metric);
    const double x = LEFT + LABEL;
    char text[TEXT];
    if (isnan(value.mean)) {
        pp_svg_text(to, x + 2, y + BAR - 3, PP_SVG_START, PP_SVG_MUTED, "– not measured");
        return;
    }
    (void)snprintf(text, sizeof text, "%.200s: %s %.1f %%", name_of(job),
                   pp_metric_get(metric)->spec_name, value.mean);
    const double reach = 2 * value.stderr_;
    const pp_svg_bar bar = {.x = x,
                            .y = y,
                            .width = PLOT * fmin(value.mean, WHOLE) / WHOLE,
                            .height = BAR,
                            .whisker_from = x + PLOT * fmax(value.mean - reach, 0) / WHOLE,
                            .whisker_to = x + PLOT * fmin(value.mean + reach, WHOLE) / WHOLE,
                            .class = colour(i),
                            .title = text};
    pp_svg_draw_bar(to, &bar);
}

static void draw_legend(FILE *to, const pp_figure_job *jobs, size_t n)
{
    double x = LEFT;
    for (size_t i = 0; i < n; i++) {
        const char *entry[] = {colour(i), name_of(&jobs[i]), NULL};
        pp_svg_legend(to, x, TOP - 22, entry);
        x += 30 + 7 * (double)strlen(name_of(&jobs[i]));
    }
}

void pp_figure_overview(const pp_figure_job *jobs, size_t n, FILE *to)
{
    static const char title[] = "What jobs use of their GPUs";
    static const char text[] = "Means over all of a job's time. Whiskers: two standard errors.";
    const double group = (double)n * BAR + APART;
    const double bottom = TOP + DRAWN * group;
    pp_svg_begin(to, LEFT + LABEL + PLOT + 2 * LEFT, bottom + BELOW, title, text);
    pp_svg_text(to, LEFT, 22, PP_SVG_START, "title", title);
    pp_svg_text(to, LEFT, 42, PP_SVG_START, PP_SVG_MUTED, text);
    draw_legend(to, jobs, n);
    pp_svg_percent_axis(to, LEFT + LABEL, PLOT, TOP, bottom);
    for (size_t m = 0; m < DRAWN; m++) {
        const double y = TOP + (double)m * group + (double)APART / 2;
        pp_svg_text(to, LEFT + LABEL - 8, y + (double)n * BAR / 2 + 4, PP_SVG_END, "",
                    pp_metric_get(drawn[m])->spec_name);
        for (size_t i = 0; i < n; i++)
            draw(to, &jobs[i], i, drawn[m], y + (double)i * BAR);
    }
    pp_svg_end(to);
}

/* Names come from anybody: what Markdown would heed is escaped. */
static void put_text(FILE *to, const char *text)
{
    while (*text) {
        size_t n = 1;
        while (((unsigned char)text[n] & 0xc0) == 0x80)
            n++;
        if (strchr("\\`*_{}[]()<>#+!|&", *text))
            (void)fputc('\\', to);
        if (pp_text_is_control(text))
            (void)fputc('?', to);
        else
            (void)fwrite(text, 1, n, to);
        text += n;
    }
}

static void put_value(FILE *to, double mean, double error, int digits)
{
    if (isnan(mean))
        (void)fputs(" – |", to);
    else if (isnan(error))
        (void)fprintf(to, " %.*f |", digits, mean);
    else
        (void)fprintf(to, " %.*f ± %.*f |", digits, mean, digits, error);
}

static void put_metric(FILE *to, const pp_figure_job *job, pp_metric metric, int digits)
{
    const pp_figure_value value = pp_figure_value_of(job->row, metric);
    put_value(to, value.mean, value.stderr_, digits);
}

static double parameters_of(const pp_figure_job *job)
{
    double sum = 0;
    for (size_t i = 0; i < job->count; i++) {
        const json_t *row = job->layers[i].rows[PP_FIGURE_FORWARD];
        const double own =
            pp_figure_number(row ? row : job->layers[i].rows[PP_FIGURE_BACKWARD], "parameters");
        sum += isnan(own) ? 0 : own;
    }
    return sum;
}

void pp_figure_overview_table(const pp_figure_job *jobs, size_t n, FILE *to)
{
    const double million = 1e6;
    (void)fputs("| Job | Parameters, M | ms/step | GPUMem, MiB |", to);
    for (size_t m = 0; m < DRAWN; m++)
        (void)fprintf(to, " %s, %% |", pp_metric_get(drawn[m])->spec_name);
    (void)fputs("\n|---|---|---|---|", to);
    for (size_t m = 0; m < DRAWN; m++)
        (void)fputs("---|", to);
    (void)fputc('\n', to);
    for (size_t i = 0; i < n; i++) {
        (void)fputs("| ", to);
        put_text(to, name_of(&jobs[i]));
        (void)fprintf(to, " | %.1f |", parameters_of(&jobs[i]) / million);
        put_value(to, jobs[i].step_ms, jobs[i].step_stderr, 3);
        put_metric(to, &jobs[i], PP_METRIC_GPU_MEM, 0);
        for (size_t m = 0; m < DRAWN; m++)
            put_metric(to, &jobs[i], drawn[m], 1);
        (void)fputc('\n', to);
    }
}
