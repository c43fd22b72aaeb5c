#include "cli/figures/layers.h"

#include "cli/figures/svg.h"
#include "cli/terminal/names.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    LEFT = 12,
    LABEL_PLACES = 32,
    LABEL = 236, /* width of the names' column */
    PLOTS = 640, /* width of all plots, gaps in between included */
    GAP = 28,
    TOP = 84,
    ROW = 22,
    BAR = 8,
    BELOW = 30,
    WHOLE = 100,
    TEXT = 400,
};

/* Where the plot of the i-th metric is. */
typedef struct plot {
    pp_metric metric;
    double x, width;
} plot;

static plot plot_of(const pp_metric *metrics, size_t n, size_t i)
{
    const double width = (PLOTS - (double)GAP * (double)(n - 1)) / (double)n;
    return (plot){metrics[i], LEFT + LABEL + (double)i * (width + GAP), width};
}

static double within(double percent)
{
    return percent < 0 ? 0 : percent > WHOLE ? WHOLE : percent;
}

/* A file that anybody wrote may have values of hundreds of digits. */
static void put_percent(char out[32], double percent)
{
    if (fabs(percent) < 1e6)
        (void)snprintf(out, 32, "%.1f", percent);
    else
        (void)snprintf(out, 32, "%.3g", percent);
}

/* What a bar is, in words. */
static void describe(const pp_figure_layer *layer, pp_figure_phase phase, pp_metric metric,
                     const pp_figure_value *value, char *out, size_t size)
{
    const char *const phases[] = {"forward", "backward"};
    const char *name = pp_metric_get(metric)->spec_name;
    char mean[32], error[32];
    put_percent(mean, isnan(value->mean) ? value->group_mean : value->mean);
    put_percent(error, value->stderr_);
    if (!isnan(value->mean) && !isnan(value->stderr_))
        (void)snprintf(out, size, "%.200s %s: %s %s %%, standard error %s", layer->name,
                       phases[phase], name, mean, error);
    else if (!isnan(value->mean))
        (void)snprintf(out, size, "%.200s %s: %s %s %%", layer->name, phases[phase], name, mean);
    else if (!isnan(value->group_mean))
        (void)snprintf(out, size, "%.100s %s: %s %s %% of %.150s together", layer->name,
                       phases[phase], name, mean, value->group);
    else
        (void)snprintf(out, size, "%.200s %s: %s was not measured: %.150s", layer->name,
                       phases[phase], name, *value->reason ? value->reason : "no row has it");
}

static void draw_value(FILE *to, const plot *p, const pp_figure_layer *layer, pp_figure_phase phase,
                       double y)
{
    static const char *const classes[][2] = {{PP_SVG_FORWARD, PP_SVG_FORWARD " group"},
                                             {PP_SVG_BACKWARD, PP_SVG_BACKWARD " group"}};
    const pp_figure_value value = pp_figure_value_of(layer->rows[phase], p->metric);
    const bool own = !isnan(value.mean);
    const double mean = own ? value.mean : value.group_mean;
    const double reach = own ? 2 * value.stderr_ : (double)NAN;
    char text[TEXT];
    describe(layer, phase, p->metric, &value, text, sizeof text);
    if (isnan(mean)) {
        (void)fputs("<g><title>", to);
        pp_svg_escape(to, text);
        (void)fputs("</title>", to);
        pp_svg_text(to, p->x + 2, y + BAR, PP_SVG_START, PP_SVG_MUTED, "–");
        (void)fputs("</g>\n", to);
        return;
    }
    const pp_svg_bar bar = {.x = p->x,
                            .y = y,
                            .width = p->width * within(mean) / WHOLE,
                            .height = BAR,
                            .whisker_from = p->x + p->width * within(mean - reach) / WHOLE,
                            .whisker_to = p->x + p->width * within(mean + reach) / WHOLE,
                            .class = classes[phase][!own],
                            .title = text};
    pp_svg_draw_bar(to, &bar);
}

static void draw_layer(FILE *to, const pp_figure_layer *layer, const pp_name_cut *cut,
                       const pp_metric *metrics, size_t n, double y)
{
    char *name = NULL;
    size_t length = 0;
    FILE *text = open_memstream(&name, &length);
    if (text) {
        pp_name_print(text, layer->name, cut);
        (void)fclose(text);
    }
    while (length > 0 && name && name[length - 1] == ' ') /* they fill the column of a terminal */
        name[--length] = '\0';
    pp_svg_text(to, LEFT + LABEL - 8, y + (double)ROW / 2 + 2, PP_SVG_END, "", name ? name : "");
    free(name);
    for (size_t i = 0; i < n; i++) {
        const plot p = plot_of(metrics, n, i);
        for (int phase = 0; phase < PP_FIGURE_PHASES; phase++)
            if (layer->ms[phase] > 0)
                draw_value(to, &p, layer, (pp_figure_phase)phase, y + phase * (BAR + 1));
    }
}

/* Whether a value of several layers together is drawn. */
static bool any_group(const pp_figure_job *job, const pp_metric *metrics, size_t n)
{
    bool any = false;
    for (size_t i = 0; i < job->count; i++)
        for (size_t k = 0; k < n * PP_FIGURE_PHASES; k++) {
            const pp_figure_value value = pp_figure_value_of(
                job->layers[i].rows[k % PP_FIGURE_PHASES], metrics[k / PP_FIGURE_PHASES]);
            any = any || (job->layers[i].shown && isnan(value.mean) && !isnan(value.group_mean));
        }
    return any;
}

/* What is in the figure, and what is not. */
static void caption(const pp_figure_job *job, bool groups, char *out, size_t size)
{
    const double all = job->shown_ms + job->hidden_ms;
    char hidden[TEXT / 4] = "", timeless[TEXT / 4] = "";
    if (job->hidden > 0)
        (void)snprintf(hidden, sizeof hidden,
                       " Not drawn: %zu layers with %.1f %% of layers' time.", job->hidden,
                       WHOLE * job->hidden_ms / all);
    if (job->timeless > 0)
        (void)snprintf(timeless, sizeof timeless, " %zu layers took no time.", job->timeless);
    (void)snprintf(out, size, "Whiskers: two standard errors. –: not measured.%s%s%s",
                   groups ? " Paler: of layers that cannot be told apart, together." : "", hidden,
                   timeless);
}

static size_t names_shown(const pp_figure_job *job, const char **names)
{
    size_t n = 0;
    for (size_t i = 0; i < job->count; i++)
        if (job->layers[i].shown)
            names[n++] = job->layers[i].name;
    return n;
}

static void draw_axes(FILE *to, const pp_metric *metrics, size_t n, double bottom)
{
    for (size_t i = 0; i < n; i++) {
        const plot p = plot_of(metrics, n, i);
        char text[64];
        (void)snprintf(text, sizeof text, "%s, %%", pp_metric_get(p.metric)->spec_name);
        pp_svg_text(to, p.x, TOP - 8, PP_SVG_START, "", text);
        pp_svg_percent_axis(to, p.x, p.width, TOP, bottom);
    }
}

int pp_figure_layers(const pp_figure_job *job, const char *title, const pp_metric *metrics,
                     size_t n, FILE *to, pp_error *err)
{
    static const char *const legend[] = {PP_SVG_FORWARD, "forward", PP_SVG_BACKWARD, "backward",
                                         NULL};
    const char **names = calloc(job->count + 1, sizeof *names);
    pp_name_cut cut = {.places = LABEL_PLACES};
    char text[TEXT];
    if (!names)
        return pp_error_nomem(err);
    const size_t shown = names_shown(job, names);
    if (!pp_names_cut(names, shown, LABEL_PLACES, &cut))
        (void)pp_names_cut_begins(names, shown, LABEL_PLACES, &cut);
    const double bottom = TOP + ROW * (double)shown;
    caption(job, any_group(job, metrics, n), text, sizeof text);
    pp_svg_begin(to, LEFT + LABEL + PLOTS + 2 * LEFT, bottom + BELOW, title, text);
    pp_svg_text(to, LEFT, 42, PP_SVG_START, PP_SVG_MUTED, text);
    (void)snprintf(text, sizeof text, "%s: %.60s, pod %.60s, %.60s", title, job->session, job->pod,
                   *job->gpu ? job->gpu : "GPU not known");
    pp_svg_text(to, LEFT, 22, PP_SVG_START, "title", text);
    pp_svg_legend(to, LEFT, TOP - 8, legend);
    draw_axes(to, metrics, n, bottom);
    double y = TOP + 2;
    for (size_t i = 0; i < job->count; i++) {
        if (!job->layers[i].shown)
            continue;
        draw_layer(to, &job->layers[i], &cut, metrics, n, y);
        y += ROW;
    }
    pp_svg_end(to);
    free(names);
    return 0;
}
