#include "controller/announced.h"

#include "common/cleanup.h"
#include "common/json.h"

#include <stdlib.h>
#include <string.h>

typedef struct announcement {
    pp_session *session; /* NULL: it came, or none was noted here */
    bool prefix;         /* its name is what the name will begin with */
    int64_t until_ns;
} announcement;

struct pp_announced {
    announcement all[PP_ANNOUNCED_MAX];
};

enum { GENERATED = 5 }; /* characters that the API server adds to a generateName */

pp_announced *pp_announced_new(void)
{
    return calloc(1, sizeof(pp_announced));
}

static void forget(announcement *a)
{
    (void)pp_session_free(a->session);
    *a = (announcement){0};
}

void pp_announced_free(pp_announced *announced)
{
    for (size_t i = 0; announced && i < PP_ANNOUNCED_MAX; i++)
        forget(&announced->all[i]);
    free(announced);
}

/* The object as it will be, as far as matching goes: name, UID and time are given later. */
static json_t *completed(const json_t *object, const char *namespace_, bool *ret_prefix)
{
    json_t *metadata = json_copy(json_object_get(object, "metadata"));
    const char *name = pp_json_get_string(metadata, "name", NULL);
    const char *prefix = pp_json_get_string(metadata, "generateName", NULL);
    *ret_prefix = !name || !*name;
    if (*ret_prefix)
        (void)json_object_set_new(metadata, "name", json_string(prefix ? prefix : ""));
    (void)json_object_set_new(metadata, "namespace", json_string(namespace_));
    (void)json_object_set_new(metadata, "uid", json_string("announced"));
    (void)json_object_set_new(metadata, "creationTimestamp", json_string("1970-01-01T00:00:00Z"));
    json_t *whole = json_pack("{s:o}", "metadata", metadata);
    (void)json_object_set(whole, "spec", json_object_get(object, "spec"));
    return whole;
}

static bool is_older(const announcement *a, const announcement *than)
{
    return a->session && (!than || a->until_ns < than->until_ns);
}

/* Where to note a session: in place of the same one, or of one whose time is over; of the oldest of
 * its namespace where that has its share, else of all where there is no room. */
static announcement *place_for(pp_announced *announced, const pp_session *session, bool prefix,
                               int64_t now_ns)
{
    announcement *room = NULL, *oldest = NULL, *oldest_here = NULL;
    size_t here = 0;
    for (size_t i = 0; i < PP_ANNOUNCED_MAX; i++) {
        announcement *a = &announced->all[i];
        if (a->session && a->until_ns <= now_ns)
            forget(a);
        const bool same_space =
            a->session && strcmp(a->session->namespace_, session->namespace_) == 0;
        if (same_space && !prefix && !a->prefix && strcmp(a->session->name, session->name) == 0)
            return a;
        here += same_space;
        room = !room && !a->session ? a : room;
        oldest = is_older(a, oldest) ? a : oldest;
        oldest_here = same_space && is_older(a, oldest_here) ? a : oldest_here;
    }
    if (here >= PP_ANNOUNCED_EACH)
        return oldest_here;
    return room ? room : oldest;
}

int pp_announced_add(pp_announced *announced, const char *namespace_, const json_t *object,
                     int64_t now_ns, pp_error *err)
{
    bool prefix = false;
    pp_session *session = NULL;
    PP_CLEANUP_JSON json_t *whole = completed(object, namespace_, &prefix);
    if (pp_session_decode(whole, &session, err) < 0)
        return -1;
    if (!pp_session_live(session)) {
        *err = session->invalid;
        (void)pp_session_free(session);
        return -1;
    }
    announcement *a = place_for(announced, session, prefix, now_ns);
    forget(a);
    *a = (announcement){session, prefix, now_ns + PP_ANNOUNCED_FOR};
    return 0;
}

static bool is_it(const announcement *a, const pp_session *session)
{
    const pp_session *announced = a->session;
    if (!announced || strcmp(announced->namespace_, session->namespace_) != 0)
        return false;
    const size_t n = strlen(announced->name);
    return a->prefix ? strncmp(session->name, announced->name, n) == 0 &&
                           strlen(session->name) == n + GENERATED
                     : strcmp(session->name, announced->name) == 0;
}

/* Its own name goes before a prefix; of two of one prefix the first comes first. */
void pp_announced_came(pp_announced *announced, const pp_session *session)
{
    announcement *found = NULL;
    for (size_t i = 0; i < PP_ANNOUNCED_MAX; i++) {
        announcement *a = &announced->all[i];
        if (is_it(a, session) && (!found || (found->prefix && !a->prefix) ||
                                  (found->prefix == a->prefix && is_older(a, found))))
            found = a;
    }
    if (found)
        forget(found);
}

/* The last announced of those that match; NULL: none does. */
static const announcement *find(const pp_announced *announced, const char *namespace_,
                                const json_t *labels, int64_t now_ns)
{
    const announcement *last = NULL;
    for (size_t i = 0; i < PP_ANNOUNCED_MAX; i++) {
        const announcement *a = &announced->all[i];
        if (a->session && a->until_ns > now_ns && (!last || a->until_ns > last->until_ns) &&
            strcmp(a->session->namespace_, namespace_) == 0 &&
            pp_selector_matches(&a->session->selector, labels))
            last = a;
    }
    return last;
}

int64_t pp_announced_until(const pp_announced *announced, const char *namespace_,
                           const json_t *labels, int64_t now_ns)
{
    const announcement *a = find(announced, namespace_, labels, now_ns);
    return a ? a->until_ns : 0;
}

const char *pp_announced_name(const pp_announced *announced, const char *namespace_,
                              const json_t *labels, int64_t now_ns)
{
    const announcement *a = find(announced, namespace_, labels, now_ns);
    return a && !a->prefix ? a->session->name : NULL;
}
