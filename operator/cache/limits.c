#include "operator/cache/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

typedef struct list {
    const json_t **objects; /* owned references */
    char **keys;
    size_t count, capacity;
} list;

typedef struct space {
    char ns[64]; /* key */
    list kinds[2];
    pp_inject_limits view;
    UT_hash_handle hh;
} space;

struct pp_limits {
    space *spaces;
};

pp_limits *pp_limits_new(void)
{
    return calloc(1, sizeof(pp_limits));
}

static void let_go(const json_t *object)
{
    json_decref((json_t *)(uintptr_t)object);
}

static void free_list(list *l)
{
    for (size_t i = 0; i < l->count; i++) {
        let_go(l->objects[i]);
        free(l->keys[i]);
    }
    free(l->objects);
    free(l->keys);
}

static void free_space(pp_limits *limits, space *s)
{
    HASH_DEL(limits->spaces, s);
    free_list(&s->kinds[PP_LIMITS_RANGES]);
    free_list(&s->kinds[PP_LIMITS_QUOTAS]);
    free(s);
}

void pp_limits_free(pp_limits *limits)
{
    if (!limits)
        return;
    space *s;
    space *next;
    HASH_ITER(hh, limits->spaces, s, next)
    {
        free_space(limits, s);
    }
    free(limits);
}

/* The namespace of a key "namespace/name"; a longer one than there can be finds nothing. */
static void namespace_of(const char *key, char *out, size_t size)
{
    const size_t n = strcspn(key, "/");
    (void)snprintf(out, size, "%.*s", (int)(n < size ? n : 0), key);
}

static space *find(const pp_limits *limits, const char *ns)
{
    space *s = NULL;
    HASH_FIND_STR(limits->spaces, ns, s);
    return s;
}

static space *find_or_make(pp_limits *limits, const char *key)
{
    char ns[sizeof((space *)0)->ns];
    namespace_of(key, ns, sizeof ns);
    space *s = find(limits, ns);
    if (s)
        return s;
    s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    (void)snprintf(s->ns, sizeof s->ns, "%s", ns);
    HASH_ADD_STR(limits->spaces, ns, s);
    return s;
}

static void refresh(space *s)
{
    s->view = (pp_inject_limits){.ranges = s->kinds[PP_LIMITS_RANGES].objects,
                                 .n_ranges = s->kinds[PP_LIMITS_RANGES].count,
                                 .quotas = s->kinds[PP_LIMITS_QUOTAS].objects,
                                 .n_quotas = s->kinds[PP_LIMITS_QUOTAS].count};
}

static size_t place_of(const list *l, const char *key)
{
    size_t i = 0;
    while (i < l->count && strcmp(l->keys[i], key) != 0)
        i++;
    return i;
}

static int make_room(list *l)
{
    if (l->count < l->capacity)
        return 0;
    const size_t capacity = l->capacity ? l->capacity * 2 : 2;
    const json_t **objects = realloc(l->objects, capacity * sizeof(const json_t *));
    if (!objects)
        return -1;
    l->objects = objects;
    char **keys = realloc(l->keys, capacity * sizeof *keys);
    if (!keys)
        return -1;
    l->keys = keys;
    l->capacity = capacity;
    return 0;
}

static int append(list *l, const char *key, const json_t *object)
{
    char *copy = make_room(l) == 0 ? strdup(key) : NULL;
    if (!copy)
        return -1;
    l->keys[l->count] = copy;
    l->objects[l->count++] = json_incref((json_t *)(uintptr_t)object);
    return 0;
}

int pp_limits_put(pp_limits *limits, pp_limits_kind kind, const char *key, const json_t *object)
{
    space *s = find_or_make(limits, key);
    if (!s)
        return -1;
    list *l = &s->kinds[kind];
    const size_t at = place_of(l, key);
    int rc = 0;
    if (at < l->count) {
        let_go(l->objects[at]);
        l->objects[at] = json_incref((json_t *)(uintptr_t)object);
    } else {
        rc = append(l, key, object);
    }
    refresh(s); /* also where there is no memory: the arrays may lie elsewhere */
    return rc;
}

void pp_limits_drop(pp_limits *limits, pp_limits_kind kind, const char *key)
{
    char ns[sizeof((space *)0)->ns];
    namespace_of(key, ns, sizeof ns);
    space *s = find(limits, ns);
    list *l = s ? &s->kinds[kind] : NULL;
    const size_t at = l ? place_of(l, key) : 0;
    if (!l || at == l->count)
        return;
    let_go(l->objects[at]);
    free(l->keys[at]);
    l->count--;
    l->objects[at] = l->objects[l->count];
    l->keys[at] = l->keys[l->count];
    refresh(s);
    if (s->kinds[0].count + s->kinds[1].count == 0)
        free_space(limits, s);
}

const pp_inject_limits *pp_limits_of(const pp_limits *limits, const char *ns)
{
    const space *s = limits && ns ? find(limits, ns) : NULL;
    return s ? &s->view : NULL;
}
