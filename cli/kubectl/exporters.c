#include "cli/kubectl/exporters.h"

#include "common/metric.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { NAMES_MOST = 10000 };

json_t *pp_exporter_series(const char *text)
{
    json_t *names = json_object(), *list = json_array();
    const char *name;
    json_t *ignored;
    for (const char *line = text; names && *line && json_object_size(names) < NAMES_MOST;
         line += strcspn(line, "\n"), line += *line == '\n') {
        const size_t n = strcspn(line, "{ \n");
        if (n > 0 && *line != '#')
            (void)json_object_setn_new(names, line, n, json_null());
    }
    json_object_foreach(names, name, ignored)
    {
        (void)json_array_append_new(list, json_string(name));
    }
    json_decref(names);
    return list;
}

static bool has(const json_t *series, const char *name)
{
    size_t i;
    json_t *one;
    json_array_foreach(series, i, one)
    {
        if (json_is_string(one) && strcmp(json_string_value(one), name) == 0)
            return true;
    }
    return false;
}

void pp_exporter_lacks(const json_t *series, char *out, size_t size)
{
    size_t used = 0;
    *out = '\0';
    for (int i = 0; i < PP_METRIC_COUNT && used < size; i++) {
        const pp_metric_info *info = pp_metric_get((pp_metric)i);
        if (!info->usual || has(series, info->dcgm.name))
            continue;
        const int n = snprintf(out + used, size - used, "%s%s (%s)", used ? ", " : "",
                               info->dcgm.name, info->spec_name);
        used += n > 0 ? (size_t)n : size;
    }
}
