#include "operator/http_server/metrics.h"

#include "common/cleanup.h"

#include <dirent.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <utlist.h>

typedef enum metric_type { COUNTER, GAUGE, HISTOGRAM } metric_type;

struct pp_meter {
    pp_meter *next;
    char *labels; /* inside of the braces; "" for none */
    double value; /* of a counter or gauge; sum of a histogram */
    uint64_t count;
    metric_type type;
    size_t bound_count;
    double bounds[PP_METRICS_MAX_BUCKETS];
    uint64_t buckets[PP_METRICS_MAX_BUCKETS]; /* not cumulative */
};

/** All series of one name. */
typedef struct family {
    struct family *next;
    char *name;
    char *help;
    metric_type type;
    pp_meter *series;
} family;

typedef struct collector {
    struct collector *next;
    void (*collect)(void *context);                           /* either */
    int (*append)(void *context, pp_buf *out, pp_error *err); /* or */
    void *context;
} collector;

/** What process_* shows. */
typedef struct process_metrics {
    pp_meter *cpu;
    pp_meter *resident;
    pp_meter *virtual_size;
    pp_meter *open_files;
} process_metrics;

struct pp_metrics {
    family *families;
    collector *collectors;
    size_t series;
    process_metrics process;
};

pp_metrics *pp_metrics_new(void)
{
    return calloc(1, sizeof(pp_metrics));
}

static void free_family(family *f)
{
    pp_meter *m;
    pp_meter *spare;
    LL_FOREACH_SAFE(f->series, m, spare)
    {
        free(m->labels);
        free(m);
    }
    free(f->name);
    free(f->help);
    free(f);
}

void pp_metrics_free(pp_metrics *metrics)
{
    if (!metrics)
        return;
    family *f;
    family *spare_family;
    LL_FOREACH_SAFE(metrics->families, f, spare_family)
    {
        free_family(f);
    }
    collector *c;
    collector *spare_collector;
    LL_FOREACH_SAFE(metrics->collectors, c, spare_collector)
    {
        free(c);
    }
    free(metrics);
}

/** Prometheus' rule for metric names. */
static bool is_name(const char *name)
{
    static const char first[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_:";
    static const char rest[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_:0123456789";
    return *name && strchr(first, *name) && strspn(name, rest) == strlen(name);
}

static family *new_family(pp_metrics *metrics, const char *name, const char *help, metric_type type,
                          pp_error *err)
{
    if (!is_name(name) || strpbrk(help, "\n\\")) {
        (void)pp_error_set(err, PP_ERR_INVALID, "metric %s: not a name and help text", name);
        return NULL;
    }
    family *f = calloc(1, sizeof *f);
    if (f) {
        f->type = type;
        f->name = strdup(name);
        f->help = strdup(help);
    }
    if (!f || !f->name || !f->help) {
        if (f)
            free_family(f);
        (void)pp_error_nomem(err);
        return NULL;
    }
    LL_APPEND(metrics->families, f);
    return f;
}

static family *get_family(pp_metrics *metrics, const char *name, const char *help, metric_type type,
                          pp_error *err)
{
    family *f;
    LL_FOREACH(metrics->families, f)
    {
        if (strcmp(f->name, name) != 0)
            continue;
        if (f->type == type)
            return f;
        (void)pp_error_set(err, PP_ERR_CONFLICT, "metric %s exists with another type", name);
        return NULL;
    }
    return new_family(metrics, name, help, type, err);
}

static pp_meter *get_series(pp_metrics *metrics, const char *name, const char *help,
                            const char *labels, metric_type type, pp_error *err)
{
    family *f = get_family(metrics, name, help, type, err);
    if (!f)
        return NULL;
    const char *wanted = labels ? labels : "";
    pp_meter *m;
    LL_FOREACH(f->series, m)
    {
        if (strcmp(m->labels, wanted) == 0)
            return m;
    }
    if (metrics->series >= PP_METRICS_MAX_SERIES) {
        (void)pp_error_set(err, PP_ERR_TOO_LARGE, "more than %d series", PP_METRICS_MAX_SERIES);
        return NULL;
    }
    m = calloc(1, sizeof *m);
    char *copy = strdup(wanted);
    if (!m || !copy) {
        free(m);
        free(copy);
        (void)pp_error_nomem(err);
        return NULL;
    }
    m->labels = copy;
    m->type = type;
    metrics->series++;
    LL_APPEND(f->series, m);
    return m;
}

pp_meter *pp_metrics_counter(pp_metrics *metrics, const char *name, const char *help,
                             const char *labels, pp_error *err)
{
    return get_series(metrics, name, help, labels, COUNTER, err);
}

pp_meter *pp_metrics_gauge(pp_metrics *metrics, const char *name, const char *help,
                           const char *labels, pp_error *err)
{
    return get_series(metrics, name, help, labels, GAUGE, err);
}

pp_meter *pp_metrics_histogram(pp_metrics *metrics, const char *name, const char *help,
                               const char *labels, const double *bounds, size_t count,
                               pp_error *err)
{
    if (count < 1 || count > PP_METRICS_MAX_BUCKETS) {
        (void)pp_error_set(err, PP_ERR_INVALID, "metric %s: 1 to %d buckets", name,
                           PP_METRICS_MAX_BUCKETS);
        return NULL;
    }
    for (size_t i = 1; i < count; i++) {
        if (!(bounds[i] > bounds[i - 1])) {
            (void)pp_error_set(err, PP_ERR_INVALID, "metric %s: bounds must ascend", name);
            return NULL;
        }
    }
    pp_meter *m = get_series(metrics, name, help, labels, HISTOGRAM, err);
    if (m && !m->bound_count) {
        m->bound_count = count;
        (void)memcpy(m->bounds, bounds, count * sizeof *bounds);
    }
    return m;
}

void pp_meter_add(pp_meter *metric, double n)
{
    if (metric && metric->type != HISTOGRAM && (n >= 0 || metric->type == GAUGE))
        metric->value += n;
}

void pp_meter_set(pp_meter *metric, double value)
{
    if (metric && (metric->type == GAUGE || (metric->type == COUNTER && value > metric->value)))
        metric->value = value;
}

void pp_meter_observe(pp_meter *metric, double value)
{
    if (!metric || metric->type != HISTOGRAM || isnan(value))
        return;
    metric->value += value;
    metric->count++;
    for (size_t i = 0; i < metric->bound_count; i++) {
        if (value <= metric->bounds[i]) {
            metric->buckets[i]++;
            return;
        }
    }
}

static int add_collector(pp_metrics *metrics, const collector *wanted, pp_error *err)
{
    collector *c = malloc(sizeof *c);
    if (!c)
        return pp_error_nomem(err);
    *c = *wanted;
    LL_APPEND(metrics->collectors, c);
    return 0;
}

int pp_metrics_on_render(pp_metrics *metrics, void (*collect)(void *context), void *context,
                         pp_error *err)
{
    const collector c = {.collect = collect, .context = context};
    return add_collector(metrics, &c, err);
}

int pp_metrics_on_append(pp_metrics *metrics,
                         int (*append)(void *context, pp_buf *out, pp_error *err), void *context,
                         pp_error *err)
{
    const collector c = {.append = append, .context = context};
    return add_collector(metrics, &c, err);
}

/* ---- rendering ---------------------------------------------------------------------------------
 */

void pp_metrics_format_number(char *out, size_t size, double value)
{
    if (isnan(value))
        (void)snprintf(out, size, "NaN");
    else if (isinf(value))
        (void)snprintf(out, size, value > 0 ? "+Inf" : "-Inf");
    else if (fabs(value) < 1e15 && value == floor(value))
        (void)snprintf(out, size, "%.0f", value);
    else if ((void)snprintf(out, size, "%.15g", value), strtod(out, NULL) != value)
        (void)snprintf(out, size, "%.17g", value);
}

static int render_line(pp_buf *out, const char *name, const char *suffix, const char *labels,
                       const char *more, double value, pp_error *err)
{
    char number[40];
    pp_metrics_format_number(number, sizeof number, value);
    bool any = *labels || *more;
    return pp_buf_printf(out, err, "%s%s%s%s%s%s%s %s\n", name, suffix, any ? "{" : "", labels,
                         *labels && *more ? "," : "", more, any ? "}" : "", number);
}

static int render_histogram(pp_buf *out, const char *name, const pp_meter *m, pp_error *err)
{
    uint64_t cumulative = 0;
    for (size_t i = 0; i <= m->bound_count; i++) {
        char bound[40];
        char le[64];
        pp_metrics_format_number(bound, sizeof bound,
                                 i < m->bound_count ? m->bounds[i] : (double)INFINITY);
        (void)snprintf(le, sizeof le, "le=\"%s\"", bound);
        cumulative = i < m->bound_count ? cumulative + m->buckets[i] : m->count;
        if (render_line(out, name, "_bucket", m->labels, le, (double)cumulative, err) < 0)
            return -1;
    }
    if (render_line(out, name, "_sum", m->labels, "", m->value, err) < 0)
        return -1;
    return render_line(out, name, "_count", m->labels, "", (double)m->count, err);
}

static int render_family(pp_buf *out, const family *f, pp_error *err)
{
    static const char *const types[] = {"counter", "gauge", "histogram"};
    if (pp_buf_printf(out, err, "# HELP %s %s\n# TYPE %s %s\n", f->name, f->help, f->name,
                      types[f->type]) < 0)
        return -1;
    const pp_meter *m;
    LL_FOREACH(f->series, m)
    {
        int rc = f->type == HISTOGRAM ? render_histogram(out, f->name, m, err)
                                      : render_line(out, f->name, "", m->labels, "", m->value, err);
        if (rc < 0)
            return -1;
    }
    return 0;
}

int pp_metrics_render(pp_metrics *metrics, pp_buf *out, pp_error *err)
{
    const collector *c;
    LL_FOREACH(metrics->collectors, c)
    {
        if (c->collect)
            c->collect(c->context);
    }
    const family *f;
    LL_FOREACH(metrics->families, f)
    {
        if (render_family(out, f, err) < 0)
            return -1;
    }
    LL_FOREACH(metrics->collectors, c)
    {
        if (c->append && c->append(c->context, out, err) < 0)
            return -1;
    }
    return 0;
}

/* ---- process_* ---------------------------------------------------------------------------------
 */

/** Fields of /proc/self/stat by their number in proc(5); 0 where it cannot be read. */
static double stat_field(int number)
{
    char text[1024];
    PP_CLEANUP_FILE FILE *file = fopen("/proc/self/stat", "re");
    if (!file || !fgets(text, sizeof text, file))
        return 0;
    const char *p = strrchr(text, ')'); /* the name may hold anything, even spaces */
    for (int at = 2; p && at < number; at++)
        p = strchr(p + 1, ' ');
    return p ? strtod(p, NULL) : 0;
}

static double count_open_files(void)
{
    double count = 0;
    DIR *dir = opendir("/proc/self/fd");
    const struct dirent *entry;
    while (dir && (entry = readdir(dir)))
        count += entry->d_name[0] != '.';
    if (dir)
        (void)closedir(dir);
    return count > 0 ? count - 1 : 0; /* the directory itself */
}

static void collect_process(void *context)
{
    const process_metrics *p = &((const pp_metrics *)context)->process;
    double ticks = (double)sysconf(_SC_CLK_TCK);
    pp_meter_set(p->cpu, (stat_field(14) + stat_field(15)) / ticks);
    pp_meter_set(p->virtual_size, stat_field(23));
    pp_meter_set(p->resident, stat_field(24) * (double)sysconf(_SC_PAGESIZE));
    pp_meter_set(p->open_files, count_open_files());
}

/** Seconds since 1970 at which the process began. */
static double start_time(void)
{
    struct timespec now;
    struct timespec up;
    if (clock_gettime(CLOCK_REALTIME, &now) < 0 || clock_gettime(CLOCK_BOOTTIME, &up) < 0)
        return 0;
    double boot = (double)(now.tv_sec - up.tv_sec) + (double)(now.tv_nsec - up.tv_nsec) / 1e9;
    return boot + stat_field(22) / (double)sysconf(_SC_CLK_TCK);
}

int pp_metrics_add_process(pp_metrics *metrics, pp_error *err)
{
    process_metrics *p = &metrics->process;
    p->cpu = pp_metrics_counter(metrics, "process_cpu_seconds_total",
                                "User and system CPU time spent in seconds.", NULL, err);
    p->resident = pp_metrics_gauge(metrics, "process_resident_memory_bytes",
                                   "Resident memory size in bytes.", NULL, err);
    p->virtual_size = pp_metrics_gauge(metrics, "process_virtual_memory_bytes",
                                       "Virtual memory size in bytes.", NULL, err);
    p->open_files = pp_metrics_gauge(metrics, "process_open_fds",
                                     "Number of open file descriptors.", NULL, err);
    pp_meter *start =
        pp_metrics_gauge(metrics, "process_start_time_seconds",
                         "Start time of the process since unix epoch in seconds.", NULL, err);
    if (!p->cpu || !p->resident || !p->virtual_size || !p->open_files || !start)
        return -1;
    pp_meter_set(start, start_time());
    return pp_metrics_on_render(metrics, collect_process, metrics, err);
}
