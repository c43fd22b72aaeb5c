#include "cli/kubectl/node_clocks.h"

#include "cli/results/results.h"
#include "common/time.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define SECOND INT64_C(1000000000)
/* Ahead nobody renews. Behind is whoever is late: a node is ready for 40 s after it was heard of.
 */
#define AHEAD (60 * SECOND)
#define BEHIND (100 * SECOND)

typedef struct node_clock {
    const char *node;
    int64_t ahead; /* ns before this machine's clock; 0: within the bounds */
} node_clock;

static bool is_ready(const json_t *nodes, const char *name)
{
    size_t i, k;
    json_t *node, *condition;
    json_array_foreach(json_object_get(nodes, "items"), i, node)
    {
        if (strcmp(pp_results_text(json_object_get(node, "metadata"), "name"), name) != 0)
            continue;
        json_array_foreach((json_t *)(uintptr_t)pp_json_get(node, "status", "conditions", NULL), k,
                           condition)
        {
            if (strcmp(pp_results_text(condition, "type"), "Ready") == 0)
                return strcmp(pp_results_text(condition, "status"), "True") == 0;
        }
    }
    return false;
}

/* Those that are judged. */
static size_t read_clocks(const json_t *facts, int64_t now, node_clock *out)
{
    size_t i, n = 0;
    json_t *lease;
    json_array_foreach((json_t *)(uintptr_t)pp_json_get(facts, "nodeLeases", "items", NULL), i,
                       lease)
    {
        int64_t renewed = 0;
        const char *name = pp_results_text(json_object_get(lease, "metadata"), "name");
        const char *text = pp_results_text(json_object_get(lease, "spec"), "renewTime");
        if (pp_time_parse(text, &renewed, NULL) < 0 ||
            !is_ready(json_object_get(facts, "nodes"), name))
            continue;
        const int64_t ahead = renewed - now;
        out[n++] = (node_clock){name, ahead > AHEAD || ahead < -BEHIND ? ahead : 0};
    }
    return n;
}

static bool all_alike(const node_clock *clocks, size_t n)
{
    bool alike = n > 1;
    for (size_t i = 0; i < n; i++)
        alike &= clocks[i].ahead != 0 && llabs(clocks[i].ahead - clocks[0].ahead) <= BEHIND;
    return alike;
}

static int add(json_t *found, const char *of, const char *whose, int64_t ahead)
{
    char off[64];
    const int64_t whole = llabs(ahead) / SECOND * SECOND;
    pp_duration_format(whole, off, sizeof off);
    json_t *evidence =
        json_sprintf("%s about %s %s this machine's, by the last renewal of its Lease", whose, off,
                     ahead > 0 ? "ahead of" : "behind");
    return json_array_append_new(found, json_pack("{s:s, s:o}", "of", of, "evidence", evidence));
}

static int add_each(json_t *found, const node_clock *clocks, size_t n)
{
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        json_t *of = json_sprintf("node %s", clocks[i].node);
        json_t *whose = json_sprintf("the clock of node %s is", clocks[i].node);
        if (clocks[i].ahead)
            rc = of && whose
                     ? add(found, json_string_value(of), json_string_value(whose), clocks[i].ahead)
                     : -1;
        json_decref(of);
        json_decref(whose);
    }
    return rc;
}

json_t *pp_node_clocks(const json_t *facts)
{
    int64_t now = 0;
    json_t *found = json_array();
    const size_t most = json_array_size(pp_json_get(facts, "nodeLeases", "items", NULL));
    node_clock *clocks = calloc(most + 1, sizeof *clocks);
    int rc = found && clocks ? 0 : -1;
    if (rc == 0 && pp_time_parse(pp_results_text(facts, "now"), &now, NULL) == 0) {
        const size_t n = read_clocks(facts, now, clocks);
        rc = all_alike(clocks, n)
                 ? add(found, "cluster", "the clocks of all nodes are", clocks[0].ahead)
                 : add_each(found, clocks, n);
    }
    free(clocks);
    if (rc == 0)
        return found;
    json_decref(found);
    return NULL;
}
