#include "operator/store/prepared.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

enum {
    OFTEN = 3, /* uses from which it is worth a round of its own */
};

typedef enum stage { SEEN, ASKED, READY, REFUSED } stage;

struct pp_prepared_statement {
    const char *sql; /* static, so that its address tells it from others */
    stage stage;
    unsigned uses;
    int n;
    Oid types[PP_SQL_MAX_PARAMS];
    char name[24];
    UT_hash_handle hh;
};

struct pp_prepared {
    pp_prepared_statement *by_sql;
    bool given_up;
};

pp_prepared *pp_prepared_new(void)
{
    return calloc(1, sizeof(pp_prepared));
}

void pp_prepared_free(pp_prepared *p)
{
    pp_prepared_statement *s, *next;
    if (!p)
        return;
    HASH_ITER(hh, p->by_sql, s, next)
    {
        HASH_DEL(p->by_sql, s);
        free(s);
    }
    free(p);
}

static uint64_t add_bytes(uint64_t digest, const void *data, size_t n)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < n; i++)
        digest = (digest ^ bytes[i]) * UINT64_C(0x100000001b3);
    return digest;
}

/* FNV-1a of the text and its types. A name that follows from the statement is the same statement
 * wherever it is met: behind a pooler a connection may find what another process has prepared. */
static uint64_t digest(const pp_statement *s)
{
    const uint64_t text = add_bytes(UINT64_C(0xcbf29ce484222325), s->sql, strlen(s->sql));
    return add_bytes(text, s->types, (size_t)s->n * sizeof *s->types);
}

static pp_prepared_statement *find(pp_prepared *p, const pp_statement *statement)
{
    pp_prepared_statement *s = NULL;
    HASH_FIND_PTR(p->by_sql, &statement->sql, s);
    if (s)
        return s;
    s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->sql = statement->sql;
    s->n = statement->n;
    (void)memcpy(s->types, statement->types, (size_t)s->n * sizeof *s->types);
    (void)snprintf(s->name, sizeof s->name, "pp%016" PRIx64, digest(statement));
    HASH_ADD_PTR(p->by_sql, sql, s);
    return s;
}

static bool has_types(const pp_prepared_statement *s, const pp_statement *statement)
{
    return s->n == statement->n &&
           memcmp(s->types, statement->types, (size_t)s->n * sizeof *s->types) == 0;
}

pp_prepared_statement *pp_prepared_use(pp_prepared *p, const pp_statement *statement,
                                       const char **ret_name)
{
    *ret_name = NULL;
    pp_prepared_statement *s = p && !p->given_up ? find(p, statement) : NULL;
    if (!s || !has_types(s, statement))
        return NULL;
    s->uses++;
    if (s->stage == READY)
        *ret_name = s->name;
    if (s->stage != SEEN || s->uses < OFTEN)
        return NULL;
    s->stage = ASKED;
    return s;
}

const char *pp_prepared_name(const pp_prepared_statement *s)
{
    return s->name;
}

const char *pp_prepared_sql(const pp_prepared_statement *s)
{
    return s->sql;
}

const Oid *pp_prepared_types(const pp_prepared_statement *s, int *ret_n)
{
    *ret_n = s->n;
    return s->types;
}

void pp_prepared_set(pp_prepared_statement *s, bool ready)
{
    s->stage = ready ? READY : REFUSED;
}

bool pp_prepared_is_lost(const char *sqlstate)
{
    /* invalid_sql_statement_name, duplicate_prepared_statement, and feature_not_supported, which is
     * what a plan gets whose result another release's migration has changed. */
    return strcmp(sqlstate, "26000") == 0 || strcmp(sqlstate, "42P05") == 0 ||
           strcmp(sqlstate, "0A000") == 0;
}

void pp_prepared_give_up(pp_prepared *p)
{
    if (p)
        p->given_up = true;
}
