#include "sidecar/agent/route.h"

#include <stdio.h>
#include <string.h>

static size_t place(const pp_route_list *list, const char *address)
{
    size_t i = 0;
    while (i < list->count && strcmp(list->text[i], address) != 0)
        i++;
    return i;
}

void pp_route_add(pp_route_list *list, const char *address)
{
    if (list->count < PP_WIRE_MAX_ADDRESSES && pp_wire_is_address(address) &&
        place(list, address) == list->count)
        (void)snprintf(list->text[list->count++], sizeof list->text[0], "%s", address);
}

/* All of them, each once, in the order in which they are tried. */
static size_t line_up(const pp_route *route, const char **all)
{
    size_t n = 0;
    for (size_t i = 0; i < route->found.count; i++)
        all[n++] = route->found.text[i];
    for (size_t i = 0; i < route->given.count; i++) {
        if (place(&route->found, route->given.text[i]) == route->found.count)
            all[n++] = route->given.text[i];
    }
    return n;
}

const char *pp_route_next(pp_route *route, bool *ret_named)
{
    const char *all[2 * PP_WIRE_MAX_ADDRESSES];
    size_t n = line_up(route, all), i = 0;
    *ret_named = false;
    if (n == 0)
        return NULL;
    while (i < n && strcmp(all[i], route->last) != 0)
        i++;
    if (i == n)
        i = 0;
    else if (route->failed)
        i = (i + 1) % n;
    (void)snprintf(route->last, sizeof route->last, "%s", all[i]);
    *ret_named = place(&route->found, route->last) < route->found.count;
    return route->last;
}

void pp_route_failed(pp_route *route)
{
    route->failed = true;
}

void pp_route_worked(pp_route *route)
{
    route->failed = false;
}
