#include "controller/match_index.h"

#include <stdlib.h>
#include <string.h>
#include <uthash.h>
#include <utlist.h>

enum { MAX_KEY = 512 }; /* namespace, key and value of a label as Kubernetes bounds them: 445 */

struct posting;

/** That a pod or a session lies under a posting. */
typedef struct term {
    void *owner; /* pod_entry or session_entry */
    struct posting *at;
    struct term *prev, *next;
} term;

/** What lies under one label's value in one namespace, under the namespace, or under a UID. */
typedef struct posting {
    term *pods;
    term *sessions;
    size_t key_length;
    UT_hash_handle hh;
    char key[];
} posting;

typedef struct edge edge;

typedef struct pod_entry {
    char *uid; /* key */
    pp_inject_pod_view view;
    const void *object;
    struct session_entry *holder;
    edge *edges;
    term *terms;
    size_t n_terms;
    UT_hash_handle hh;
} pod_entry;

typedef struct session_entry {
    char *uid; /* key */
    const pp_session *session;
    bool live;
    edge *edges;
    term *terms;
    size_t n_terms;
    UT_hash_handle hh;
} session_entry;

/** That the pod is of the session. */
struct edge {
    pod_entry *pod;
    session_entry *session;
    edge *pod_prev, *pod_next;         /* of pod->edges */
    edge *session_prev, *session_next; /* of session->edges */
};

struct pp_match_index {
    pod_entry *pods;
    session_entry *sessions;
    posting *postings;
    pp_match_moved moved;
    void *user;
};

pp_match_index *pp_match_index_new(pp_match_moved moved, void *user)
{
    pp_match_index *index = calloc(1, sizeof *index);
    if (index) {
        index->moved = moved;
        index->user = user;
    }
    return index;
}

/* ---- postings ---- */

/* What a posting is of; no label has an empty key, nor one that begins with a slash. */
static const char WHOLE_NAMESPACE[] = "";
static const char INJECTED_FOR[] = "/uid";

/* The key's length; 0 where it is longer than any label that Kubernetes accepts. */
static size_t make_key(char *ret, const char *ns, const char *key, const char *value)
{
    int n = snprintf(ret, MAX_KEY, "%s%c%s%c%s", ns, '\0', key, '\0', value);
    return n < 0 || n >= MAX_KEY ? 0 : (size_t)n;
}

static posting *find_posting(const pp_match_index *index, const char *ns, const char *key,
                             const char *value)
{
    char text[MAX_KEY];
    posting *found = NULL;
    size_t n = make_key(text, ns, key, value);
    if (n)
        HASH_FIND(hh, index->postings, text, n, found);
    return found;
}

static posting *get_posting(pp_match_index *index, const char *ns, const char *key,
                            const char *value)
{
    posting *p = find_posting(index, ns, key, value);
    char text[MAX_KEY];
    size_t n = make_key(text, ns, key, value);
    if (p || !n)
        return p;
    p = calloc(1, sizeof *p + n);
    if (!p)
        return NULL;
    memcpy(p->key, text, n);
    p->key_length = n;
    HASH_ADD_KEYPTR(hh, index->postings, p->key, p->key_length, p);
    return p;
}

static void drop_if_empty(pp_match_index *index, posting *p)
{
    if (p->pods || p->sessions)
        return;
    HASH_DEL(index->postings, p);
    free(p);
}

static int add_term(pp_match_index *index, pod_entry *pod, const char *key, const char *value)
{
    posting *p = get_posting(index, pod->view.namespace_, key, value);
    if (!p)
        return -1;
    term *t = &pod->terms[pod->n_terms++];
    *t = (term){.owner = pod, .at = p};
    DL_APPEND(p->pods, t);
    return 0;
}

static void drop_pod_terms(pp_match_index *index, pod_entry *pod)
{
    for (size_t i = 0; i < pod->n_terms; i++) {
        term *t = &pod->terms[i];
        DL_DELETE(t->at->pods, t);
        drop_if_empty(index, t->at);
    }
    free(pod->terms);
    pod->terms = NULL;
    pod->n_terms = 0;
}

static int add_session_term(pp_match_index *index, session_entry *s, const char *key,
                            const char *value)
{
    posting *p = get_posting(index, s->session->namespace_, key, value);
    if (!p)
        return -1;
    term *t = &s->terms[s->n_terms++];
    *t = (term){.owner = s, .at = p};
    DL_APPEND(p->sessions, t);
    return 0;
}

static void drop_session_terms(pp_match_index *index, session_entry *s)
{
    for (size_t i = 0; i < s->n_terms; i++) {
        term *t = &s->terms[i];
        DL_DELETE(t->at->sessions, t);
        drop_if_empty(index, t->at);
    }
    free(s->terms);
    s->terms = NULL;
    s->n_terms = 0;
}

/* ---- holders ---- */

static session_entry *find_session(const pp_match_index *index, const char *uid)
{
    session_entry *s = NULL;
    HASH_FIND_STR(index->sessions, uid, s);
    return s;
}

static pod_entry *find_pod(const pp_match_index *index, const char *uid)
{
    pod_entry *pod = NULL;
    HASH_FIND_STR(index->pods, uid, pod);
    return pod;
}

static session_entry *choose_holder(const pod_entry *pod)
{
    session_entry *best = NULL;
    const edge *e;
    DL_FOREACH2(pod->edges, e, pod_next)
    {
        const pp_session *const two[] = {best ? best->session : NULL, e->session->session};
        if (pp_inject_holder(two, 2, &pod->view) == e->session->session)
            best = e->session;
    }
    return best;
}

static void hold_anew(pp_match_index *index, pod_entry *pod)
{
    session_entry *before = pod->holder;
    pod->holder = choose_holder(pod);
    if (pod->holder != before && index->moved)
        index->moved(index->user, pod->object);
}

/* ---- edges ---- */

static int connect(pod_entry *pod, session_entry *s)
{
    edge *e = malloc(sizeof *e);
    if (!e)
        return -1;
    *e = (edge){.pod = pod, .session = s};
    DL_APPEND2(pod->edges, e, pod_prev, pod_next);
    DL_APPEND2(s->edges, e, session_prev, session_next);
    return 0;
}

static void disconnect(edge *e)
{
    DL_DELETE2(e->pod->edges, e, pod_prev, pod_next);
    DL_DELETE2(e->session->edges, e, session_prev, session_next);
    free(e);
}

static bool injected_for(const pod_entry *pod, const session_entry *s)
{
    return pod->view.session_uid && strcmp(pod->view.session_uid, s->uid) == 0;
}

/* ---- pods ---- */

static void free_pod(pp_match_index *index, pod_entry *pod)
{
    while (pod->edges)
        disconnect(pod->edges);
    drop_pod_terms(index, pod);
    free(pod->uid);
    free(pod);
}

static int add_pod_terms(pp_match_index *index, pod_entry *pod)
{
    const char *key;
    json_t *value;
    pod->terms = calloc(json_object_size(pod->view.labels) + 2, sizeof *pod->terms);
    if (!pod->terms || add_term(index, pod, WHOLE_NAMESPACE, "") < 0)
        return -1;
    if (pod->view.session_uid)
        (void)add_term(index, pod, INJECTED_FOR, pod->view.session_uid);
    json_object_foreach((json_t *)(uintptr_t)pod->view.labels, key, value)
    {
        if (json_is_string(value))
            (void)add_term(index, pod, key, json_string_value(value));
    }
    return 0;
}

static int connect_pod(pp_match_index *index, pod_entry *pod)
{
    session_entry *own = pod->view.session_uid ? find_session(index, pod->view.session_uid) : NULL;
    if (own && !pp_session_final(own->session) &&
        strcmp(own->session->namespace_, pod->view.namespace_) == 0 && connect(pod, own) < 0)
        return -1;
    for (size_t i = 0; i < pod->n_terms; i++) {
        const term *t;
        DL_FOREACH(pod->terms[i].at->sessions, t)
        {
            session_entry *s = t->owner;
            if (!injected_for(pod, s) &&
                pp_selector_matches(&s->session->selector, pod->view.labels) && connect(pod, s) < 0)
                return -1;
        }
    }
    return 0;
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* Whether it is of the same sessions as before. */
static bool same_terms(const pp_inject_pod_view *a, const pp_inject_pod_view *b)
{
    const json_t *x = a->labels;
    const json_t *y = b->labels;
    return same_text(a->namespace_, b->namespace_) && same_text(a->session_uid, b->session_uid) &&
           (x == y || (json_object_size(x) == 0 && json_object_size(y) == 0) || json_equal(x, y));
}

static pod_entry *new_pod(pp_match_index *index, const char *uid)
{
    pod_entry *pod = calloc(1, sizeof *pod);
    if (!pod || !(pod->uid = strdup(uid))) {
        free(pod);
        return NULL;
    }
    HASH_ADD_KEYPTR(hh, index->pods, pod->uid, strlen(pod->uid), pod);
    return pod;
}

int pp_match_put_pod(pp_match_index *index, const char *uid, const pp_inject_pod_view *view,
                     const void *object, pp_error *err)
{
    pod_entry *pod = find_pod(index, uid);
    bool is_new = !pod;
    if (is_new && !(pod = new_pod(index, uid)))
        return pp_error_nomem(err);
    bool same = !is_new && same_terms(&pod->view, view);
    pod->view = *view;
    pod->object = object;
    if (!same) {
        while (pod->edges)
            disconnect(pod->edges);
        drop_pod_terms(index, pod);
        if (add_pod_terms(index, pod) < 0 || connect_pod(index, pod) < 0) {
            pp_match_drop_pod(index, uid);
            return pp_error_nomem(err);
        }
    }
    if (is_new)
        pod->holder = choose_holder(pod);
    else
        hold_anew(index, pod);
    return 0;
}

void pp_match_drop_pod(pp_match_index *index, const char *uid)
{
    pod_entry *pod = find_pod(index, uid);
    if (!pod)
        return;
    HASH_DEL(index->pods, pod);
    free_pod(index, pod);
}

/* ---- sessions ---- */

static const pp_selector_requirement *first_in(const pp_selector *selector)
{
    for (size_t i = 0; i < selector->n_requirements; i++) {
        if (selector->requirements[i].op == PP_SELECTOR_IN)
            return &selector->requirements[i];
    }
    return NULL;
}

static bool listed_before(const pp_strings *values, size_t at)
{
    for (size_t i = 0; i < at; i++) {
        if (strcmp(values->items[i], values->items[at]) == 0)
            return true;
    }
    return false;
}

/* Lays the session under a label that its pods must have; a text that no label may have leads to
 * the whole namespace, too. */
static int add_session_terms(pp_match_index *index, session_entry *s)
{
    const pp_selector *selector = &s->session->selector;
    const pp_selector_requirement *in = selector->n_labels ? NULL : first_in(selector);
    s->terms = calloc(in ? in->values.count + 1 : 1, sizeof *s->terms);
    if (!s->terms)
        return -1;
    bool laid = false;
    if (selector->n_labels)
        laid = add_session_term(index, s, selector->labels[0].key, selector->labels[0].value) == 0;
    for (size_t i = 0; in && i < in->values.count; i++) {
        if (!listed_before(&in->values, i))
            laid |= add_session_term(index, s, in->key, in->values.items[i]) == 0;
    }
    return laid ? 0 : add_session_term(index, s, WHOLE_NAMESPACE, "");
}

static int connect_session(pp_match_index *index, session_entry *s)
{
    const term *t;
    const posting *own = find_posting(index, s->session->namespace_, INJECTED_FOR, s->uid);
    DL_FOREACH(own ? own->pods : NULL, t)
    {
        if (connect(t->owner, s) < 0)
            return -1;
    }
    for (size_t i = 0; i < s->n_terms; i++) {
        DL_FOREACH(s->terms[i].at->pods, t)
        {
            pod_entry *pod = t->owner;
            if (!injected_for(pod, s) &&
                pp_selector_matches(&s->session->selector, pod->view.labels) && connect(pod, s) < 0)
                return -1;
        }
    }
    return 0;
}

/* Its pods may be another's now. */
static void hold_all_anew(pp_match_index *index, const session_entry *s)
{
    const edge *e;
    DL_FOREACH2(s->edges, e, session_next)
    {
        hold_anew(index, e->pod);
    }
}

/* Takes the session from its pods; they are held anew when it has none left. */
static void disconnect_session(pp_match_index *index, session_entry *s)
{
    s->live = false;
    drop_session_terms(index, s);
    while (s->edges) {
        pod_entry *pod = s->edges->pod;
        disconnect(s->edges);
        hold_anew(index, pod);
    }
}

static session_entry *new_session(pp_match_index *index, const pp_session *session)
{
    session_entry *s = calloc(1, sizeof *s);
    if (!s || !(s->uid = strdup(session->uid))) {
        free(s);
        return NULL;
    }
    s->session = session;
    HASH_ADD_KEYPTR(hh, index->sessions, s->uid, strlen(s->uid), s);
    return s;
}

static bool same_strings(const pp_strings *a, const pp_strings *b)
{
    for (size_t i = 0; i < a->count && i < b->count; i++) {
        if (strcmp(a->items[i], b->items[i]) != 0)
            return false;
    }
    return a->count == b->count;
}

static bool same_selector(const pp_selector *a, const pp_selector *b)
{
    if (a->n_labels != b->n_labels || a->n_requirements != b->n_requirements)
        return false;
    for (size_t i = 0; i < a->n_labels; i++) {
        if (strcmp(a->labels[i].key, b->labels[i].key) != 0 ||
            strcmp(a->labels[i].value, b->labels[i].value) != 0)
            return false;
    }
    for (size_t i = 0; i < a->n_requirements; i++) {
        const pp_selector_requirement *x = &a->requirements[i];
        const pp_selector_requirement *y = &b->requirements[i];
        if (x->op != y->op || strcmp(x->key, y->key) != 0 || !same_strings(&x->values, &y->values))
            return false;
    }
    return true;
}

/* The same pods as before: only what is known of the session itself is new. */
static void renew_session(pp_match_index *index, session_entry *s, const pp_session *session)
{
    bool same_claim = s->live == pp_session_live(session) &&
                      same_strings(&s->session->containers, &session->containers) &&
                      s->session->created_ns == session->created_ns;
    s->session = session;
    s->live = pp_session_live(session);
    if (!same_claim)
        hold_all_anew(index, s);
}

int pp_match_put_session(pp_match_index *index, const pp_session *session, pp_error *err)
{
    session_entry *s = find_session(index, session->uid);
    if (s && s->n_terms && !pp_session_final(session) &&
        same_selector(&s->session->selector, &session->selector)) {
        renew_session(index, s, session);
        return 0;
    }
    if (s) {
        s->session = session;
        disconnect_session(index, s);
    } else if (!(s = new_session(index, session))) {
        return pp_error_nomem(err);
    }
    if (pp_session_final(session))
        return 0;
    if (add_session_terms(index, s) < 0 || connect_session(index, s) < 0) {
        pp_match_drop_session(index, session->uid);
        return pp_error_nomem(err);
    }
    s->live = pp_session_live(session);
    hold_all_anew(index, s);
    return 0;
}

void pp_match_drop_session(pp_match_index *index, const char *uid)
{
    session_entry *s = find_session(index, uid);
    if (!s)
        return;
    HASH_DEL(index->sessions, s);
    disconnect_session(index, s);
    free(s->uid);
    free(s);
}

void pp_match_index_free(pp_match_index *index)
{
    pod_entry *pod, *next_pod;
    session_entry *s, *next_session;
    if (!index)
        return;
    index->moved = NULL;
    HASH_ITER(hh, index->pods, pod, next_pod)
    {
        HASH_DEL(index->pods, pod);
        free_pod(index, pod);
    }
    HASH_ITER(hh, index->sessions, s, next_session)
    {
        HASH_DEL(index->sessions, s);
        drop_session_terms(index, s);
        free(s->uid);
        free(s);
    }
    free(index);
}

/* ---- questions ---- */

const pp_session *pp_match_session(const pp_match_index *index, const char *uid)
{
    const session_entry *s = find_session(index, uid);
    return s ? s->session : NULL;
}

const void *pp_match_pod(const pp_match_index *index, const char *uid)
{
    const pod_entry *pod = find_pod(index, uid);
    return pod ? pod->object : NULL;
}

const pp_session *pp_match_holder(const pp_match_index *index, const char *pod_uid)
{
    const pod_entry *pod = find_pod(index, pod_uid);
    return pod && pod->holder ? pod->holder->session : NULL;
}

/* The better of two for a pod that is to come. */
static void better_match(const posting *p, const char *ns, const json_t *labels,
                         const pp_session **best)
{
    const term *t;
    DL_FOREACH(p ? p->sessions : NULL, t)
    {
        const session_entry *s = t->owner;
        const pp_session *const two[] = {*best, s->session};
        *best = pp_inject_matching(two, 2, ns, labels);
    }
}

const pp_session *pp_match_new_pod(const pp_match_index *index, const char *namespace_,
                                   const json_t *labels)
{
    const pp_session *best = NULL;
    const char *key;
    json_t *value;
    better_match(find_posting(index, namespace_, WHOLE_NAMESPACE, ""), namespace_, labels, &best);
    json_object_foreach((json_t *)(uintptr_t)labels, key, value)
    {
        if (json_is_string(value))
            better_match(find_posting(index, namespace_, key, json_string_value(value)), namespace_,
                         labels, &best);
    }
    return best;
}

void pp_match_each_pod(const pp_match_index *index, const char *session_uid,
                       bool (*fn)(void *user, const void *object, const pp_session *holder),
                       void *user)
{
    const session_entry *s = find_session(index, session_uid);
    const edge *e;
    DL_FOREACH2(s ? s->edges : NULL, e, session_next)
    {
        if (!fn(user, e->pod->object, e->pod->holder ? e->pod->holder->session : NULL))
            return;
    }
}

void pp_match_each_of_namespace(const pp_match_index *index, const char *namespace_,
                                bool (*fn)(void *user, const void *object), void *user)
{
    const posting *p = find_posting(index, namespace_, WHOLE_NAMESPACE, "");
    const term *last = p && p->pods ? p->pods->prev : NULL;
    for (const term *t = last; t; t = t == p->pods ? NULL : t->prev) {
        if (!fn(user, ((const pod_entry *)t->owner)->object))
            return;
    }
}

void pp_match_each_session(const pp_match_index *index, const char *pod_uid,
                           bool (*fn)(void *user, const pp_session *session), void *user)
{
    const pod_entry *pod = find_pod(index, pod_uid);
    const edge *e;
    DL_FOREACH2(pod ? pod->edges : NULL, e, pod_next)
    {
        if (!fn(user, e->session->session))
            return;
    }
}
