#include "cli/tables/table_gpu.h"

#include "cli/results/items.h"
#include "cli/tables/amounts.h"
#include "common/metric.h"

#include <math.h>
#include <string.h>

/* A clock that changes is another GPU from then on: it explains why steps do. */
static void print_device(FILE *to, const json_t *device)
{
    const json_t *watts = json_object_get(device, "meanWatts");
    const json_t *clock = json_object_get(device, "smClockMHz");
    const json_t *least = json_object_get(clock, "least"), *most = json_object_get(clock, "most");
    if (json_is_number(watts))
        (void)fprintf(to, "; %.0f W", json_number_value(watts));
    if (json_is_number(least) && json_is_number(most))
        (void)fprintf(to, "; SM clock %.0f to %.0f MHz", json_number_value(least),
                      json_number_value(most));
}

static const json_t *job_of(const json_t *gpu)
{
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(gpu, "items"), i, item)
    {
        if (strcmp(pp_results_text(item, "kind"), "job") == 0)
            return item;
    }
    return NULL;
}

/* What a step takes of each rate that is known of the job, e.g. "; Power 512 J a step". */
static void print_amounts(FILE *to, const json_t *job)
{
    for (int m = 0; m < PP_METRIC_COUNT; m++) {
        const pp_metric_info *info = pp_metric_get((pp_metric)m);
        const double value =
            json_number_value(pp_json_get(job, "metrics", info->spec_name, "perStep", NULL));
        char text[PP_AMOUNT_SIZE];
        if (!(value > 0))
            continue;
        pp_amount_format(value, strcmp(info->per_step, "bytes") == 0 ? "B" : "J", text);
        (void)fprintf(to, "; %s %s a step", info->heading, text);
    }
}

/* Of the job: "DRAM 4.1 TB/s of 4.9 TB/s". */
static void print_achieved(FILE *to, const json_t *job)
{
    for (int m = 0; m < PP_METRIC_COUNT; m++) {
        const pp_metric_info *info = pp_metric_get((pp_metric)m);
        const json_t *of = pp_json_get(job, "metrics", info->spec_name, NULL);
        const double achieved = json_number_value(json_object_get(of, "achieved"));
        const double peak = json_number_value(json_object_get(of, "peak"));
        const char *unit = info->peak == PP_PEAK_MEMORY ? "B/s" : "FLOP/s";
        char texts[2][PP_AMOUNT_SIZE];
        if (!(achieved > 0 && peak > 0))
            continue;
        pp_amount_format(achieved, unit, texts[0]);
        pp_amount_format(peak, unit, texts[1]);
        (void)fprintf(to, "; %s %s of %s", info->heading, texts[0], texts[1]);
    }
}

static void print_ms(FILE *to, const json_t *gpu, const char *ms, const char *error)
{
    if (!json_is_number(json_object_get(gpu, ms)))
        return;
    (void)fputs(" of ", to);
    pp_item_print_ms(to, gpu, ms, error);
    (void)fputs(" ms", to);
}

static long long count_of(const json_t *gpu, const char *steps)
{
    return (long long)json_integer_value(json_object_get(gpu, steps));
}

static void print_idle(FILE *to, double share)
{
    (void)fprintf(to, ", in %.1f%% of which no kernel ran", 100 * share);
}

/* In how much of the training marks were; nothing in results of earlier releases. */
static void print_captures(FILE *to, const json_t *gpu)
{
    const json_int_t captures = json_integer_value(json_object_get(gpu, "captures"));
    const json_int_t first = json_integer_value(json_object_get(gpu, "firstStepNs"));
    const json_int_t last = json_integer_value(json_object_get(gpu, "lastStepNs"));
    if (captures > 0)
        (void)fprintf(to, ", in %lld capture%s over %.1f s", (long long)captures,
                      captures == 1 ? "" : "s", (double)(last - first) / 1e9);
}

/* The training's own steps; marks lengthen the others. */
static void print_counted(FILE *to, const json_t *gpu)
{
    const json_t *idle = json_object_get(gpu, "countedIdleShare");
    (void)fprintf(to, "%lld steps", count_of(gpu, "countedSteps"));
    print_ms(to, gpu, "countedStepMs", "countedStepMsStandardError");
    if (json_is_number(idle))
        print_idle(to, json_number_value(idle));
    (void)fprintf(to, "; %lld more were marked,", count_of(gpu, "steps"));
    print_ms(to, gpu, "stepMs", "stepMsStandardError");
    print_captures(to, gpu);
}

static void print_marked(FILE *to, const json_t *gpu)
{
    const json_t *gap = json_object_get(gpu, "gapNs");
    const double steps = json_number_value(json_object_get(gpu, "stepNs"));
    (void)fprintf(to, "%lld steps", count_of(gpu, "steps"));
    print_ms(to, gpu, "stepMs", "stepMsStandardError");
    if (json_is_number(gap) && steps > 0)
        print_idle(to, json_number_value(gap) / steps);
    print_captures(to, gpu);
}

void pp_table_gpu_print(FILE *to, const json_t *gpu)
{
    const char *uuid = pp_results_text(gpu, "gpu");
    (void)fprintf(to, "%s: ", *uuid ? uuid : "no GPU");
    if (json_is_number(json_object_get(gpu, "countedStepMs")))
        print_counted(to, gpu);
    else
        print_marked(to, gpu);
    print_device(to, json_object_get(gpu, "device"));
    print_amounts(to, job_of(gpu));
    print_achieved(to, job_of(gpu));
}
