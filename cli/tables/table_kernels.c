#include "cli/tables/table_kernels.h"

#include "cli/results/results.h"
#include "common/array.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
    NUMBER_PLACES = 32, /* before the name */
    NAME_LEAST = 24,
};

/* An item's kernels that are shown, and their names: as the training has them, and in short. */
typedef struct shown {
    const json_t *kernels;
    size_t n;
    const char *whole[PP_TABLE_MOST_KERNELS];
    char *brief[PP_TABLE_MOST_KERNELS];
    double all_ms; /* of all that the item has */
} shown;

static double ms_of(const json_t *kernel)
{
    return json_number_value(json_object_get(kernel, "millisecondsPerStep"));
}

/* False where memory is out. */
static bool gather(const json_t *item, int most, shown *s)
{
    size_t i;
    json_t *kernel;
    bool all = true;
    *s = (shown){.kernels = json_object_get(item, "kernels")};
    json_array_foreach(s->kernels, i, kernel)
    {
        s->all_ms += ms_of(kernel);
        if (s->n >= (size_t)most || s->n >= PP_TABLE_MOST_KERNELS)
            continue;
        const char *name = pp_results_text(kernel, "name");
        s->whole[s->n] = *name ? name : "(not told apart)";
        s->brief[s->n] = pp_name_of_kernel(s->whole[s->n]);
        all &= s->brief[s->n++] != NULL;
    }
    return all;
}

/* Whether no two kernels have the same name in short: overloads differ in their arguments only. */
static bool are_brief_apart(const shown *s)
{
    for (size_t i = 0; i < s->n; i++) {
        for (size_t k = 0; k < i; k++) {
            if (strcmp(s->brief[i], s->brief[k]) == 0 && strcmp(s->whole[i], s->whole[k]) != 0)
                return false;
        }
    }
    return true;
}

/* What of a terminal is left for names; 0: they may be as long as they are. */
static int places_left(int columns)
{
    if (columns <= 0)
        return 0;
    return columns - NUMBER_PLACES > NAME_LEAST ? columns - NUMBER_PLACES : NAME_LEAST;
}

/* The names that tell kernels apart, and how to cut them so that they still do. */
static const char *const *choose(const shown *s, int columns, pp_name_cut *cut)
{
    const char *const *names =
        are_brief_apart(s) ? (const char *const *)s->brief : (const char *const *)s->whole;
    const int left = places_left(columns), longest = pp_names_longest(names, s->n);
    const bool fits = left == 0 || longest <= left;
    if (!fits && cut->places == left && pp_names_apart(names, s->n, cut))
        return names;
    if (fits ||
        (!pp_names_cut(names, s->n, left, cut) && !pp_names_cut_begins(names, s->n, left, cut)))
        *cut = (pp_name_cut){.places = longest};
    return names;
}

static void print_kernel(FILE *to, const json_t *kernel, double all_ms, const char *name,
                         pp_name_cut cut)
{
    const double ms = ms_of(kernel);
    const int places = pp_name_places(name);
    cut.places = places < cut.places ? places : cut.places; /* nothing follows it */
    (void)fprintf(to, "  %10.2f %9.3f ", json_number_value(json_object_get(kernel, "callsPerStep")),
                  ms);
    if (all_ms > 0)
        (void)fprintf(to, "%6.1f%%  ", 100 * ms / all_ms);
    else
        (void)fprintf(to, "%7s  ", "-");
    pp_name_print(to, name, &cut);
    (void)fputc('\n', to);
}

void pp_table_kernels_heading(FILE *to)
{
    (void)fprintf(to, "  %10s %9s %7s  %s\n", "calls", "ms/step", "share",
                  "kernel (share: of the row's time of kernels)");
}

bool pp_table_kernels_known(const json_t *gpu)
{
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(gpu, "items"), i, item)
    {
        if (json_array_size(json_object_get(item, "kernels")) > 0)
            return true;
    }
    return false;
}

/* The names of all kernels that are listed. */
typedef struct all_names {
    char **items;
    size_t n, room;
} all_names;

/* Takes the item's names over. */
static void add_names(all_names *all, const json_t *item, int most)
{
    shown s;
    const bool ok =
        gather(item, most, &s) &&
        pp_array_reserve(&all->items, &all->room, all->n + s.n, sizeof(char *), NULL) == 0;
    for (size_t i = 0; i < s.n; i++) {
        if (ok)
            all->items[all->n++] = s.brief[i];
        else
            free(s.brief[i]);
    }
}

pp_name_cut pp_table_kernels_cut(const json_t *gpu, const pp_table_view *view)
{
    size_t i;
    json_t *item;
    all_names all = {0};
    json_array_foreach(json_object_get(gpu, "items"), i, item) add_names(&all, item, view->kernels);
    const char *const *names = (const char *const *)all.items;
    const int left = places_left(view->columns);
    pp_name_cut cut = {.places = pp_names_longest(names, all.n)};
    if (left > 0 && cut.places > left)
        (void)pp_names_cut(names, all.n, left, &cut);
    for (i = 0; i < all.n; i++)
        free(all.items[i]);
    free(all.items);
    return cut;
}

void pp_table_kernels_print(FILE *to, const json_t *item, const pp_table_view *view,
                            const pp_name_cut *cut)
{
    shown s;
    pp_name_cut own = *cut;
    if (gather(item, view->kernels, &s) && s.n > 0) {
        const char *const *names = choose(&s, view->columns, &own);
        for (size_t i = 0; i < s.n; i++)
            print_kernel(to, json_array_get(s.kernels, i), s.all_ms, names[i], own);
    }
    for (size_t i = 0; i < s.n; i++)
        free(s.brief[i]);
}
