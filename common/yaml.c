#include "common/yaml.h"

#include "common/cleanup.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

enum { MAX_NODES = 100000, MAX_DEPTH = 64 };

typedef struct walk {
    yaml_document_t *document;
    int nodes; /* visited, aliases counted each time they are expanded */
    pp_error *err;
} walk;

static json_t *convert(walk *w, int id, int depth);

static size_t line_of(const yaml_node_t *node)
{
    return node->start_mark.line + 1;
}

static bool one_of(const char *text, const char *const *words)
{
    for (; *words; words++) {
        if (strcmp(text, *words) == 0)
            return true;
    }
    return false;
}

/* Types a plain scalar by the core schema of YAML 1.2.2, section 10.3.2. */
static json_t *plain_scalar(const char *text)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL", NULL};
    static const char *const trues[] = {"true", "True", "TRUE", NULL};
    static const char *const falses[] = {"false", "False", "FALSE", NULL};
    if (one_of(text, nulls))
        return json_null();
    if (one_of(text, trues))
        return json_true();
    if (one_of(text, falses))
        return json_false();
    if (strspn(text, "+-0123456789.eE") != strlen(text) || strpbrk(text, "0123456789") == NULL)
        return json_string(text);
    char *end;
    errno = 0;
    long long integer = strtoll(text, &end, 10);
    if (!*end && errno == 0)
        return json_integer(integer);
    errno = 0;
    double real = strtod(text, &end);
    if (!*end && errno == 0 && isfinite(real))
        return json_real(real);
    return json_string(text);
}

static json_t *scalar(walk *w, const yaml_node_t *node)
{
    const char *text = (const char *)node->data.scalar.value;
    json_t *value = NULL;
    if (node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE)
        value = plain_scalar(text);
    else
        value = json_stringn(text, node->data.scalar.length);
    if (!value)
        (void)pp_error_set(w->err, PP_ERR_INVALID, "line %zu: text is not UTF-8", line_of(node));
    return value;
}

static json_t *sequence(walk *w, const yaml_node_t *node, int depth)
{
    PP_CLEANUP_JSON json_t *list = json_array();
    for (const yaml_node_item_t *i = node->data.sequence.items.start;
         i < node->data.sequence.items.top; i++) {
        json_t *value = convert(w, *i, depth + 1);
        if (!value)
            return NULL;
        if (json_array_append_new(list, value) < 0) {
            (void)pp_error_nomem(w->err);
            return NULL;
        }
    }
    return PP_TAKE(list);
}

static int add_pair(walk *w, json_t *map, const yaml_node_pair_t *pair, int depth)
{
    const yaml_node_t *key = yaml_document_get_node(w->document, pair->key);
    if (!key || key->type != YAML_SCALAR_NODE)
        return pp_error_set(w->err, PP_ERR_INVALID, "a key must be a string");
    const char *name = (const char *)key->data.scalar.value;
    if (strcmp(name, "<<") == 0)
        return pp_error_set(w->err, PP_ERR_INVALID, "line %zu: merge keys are not supported",
                            line_of(key));
    if (json_object_get(map, name))
        return pp_error_set(w->err, PP_ERR_INVALID, "line %zu: the key %s stands twice",
                            line_of(key), name);
    json_t *value = convert(w, pair->value, depth + 1);
    if (!value)
        return -1;
    if (json_object_set_new(map, name, value) < 0)
        return pp_error_set(w->err, PP_ERR_INVALID, "line %zu: a key is not UTF-8", line_of(key));
    return 0;
}

static json_t *mapping(walk *w, const yaml_node_t *node, int depth)
{
    PP_CLEANUP_JSON json_t *map = json_object();
    for (const yaml_node_pair_t *p = node->data.mapping.pairs.start;
         p < node->data.mapping.pairs.top; p++) {
        if (add_pair(w, map, p, depth) < 0)
            return NULL;
    }
    return PP_TAKE(map);
}

static json_t *convert(walk *w, int id, int depth)
{
    const yaml_node_t *node = yaml_document_get_node(w->document, id);
    if (!node)
        return json_null();
    if (++w->nodes > MAX_NODES || depth > MAX_DEPTH) {
        (void)pp_error_set(w->err, PP_ERR_TOO_LARGE, "more than %d values or deeper than %d levels",
                           MAX_NODES, MAX_DEPTH);
        return NULL;
    }
    switch (node->type) {
    case YAML_SCALAR_NODE:
        return scalar(w, node);
    case YAML_SEQUENCE_NODE:
        return sequence(w, node, depth);
    case YAML_MAPPING_NODE:
        return mapping(w, node, depth);
    default:
        return json_null();
    }
}

json_t *pp_yaml_parse(const char *text, size_t n, pp_error *err)
{
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser)) {
        (void)pp_error_nomem(err);
        return NULL;
    }
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, n);
    yaml_document_t document;
    json_t *value = NULL;
    if (!yaml_parser_load(&parser, &document)) {
        (void)pp_error_set(err, PP_ERR_INVALID, "not YAML: line %zu: %s",
                           parser.problem_mark.line + 1,
                           parser.problem ? parser.problem : "unreadable");
    } else {
        walk w = {.document = &document, .err = err};
        const yaml_node_t *root = yaml_document_get_root_node(&document);
        value = root ? convert(&w, 1, 0) : json_null();
        yaml_document_delete(&document);
    }
    yaml_parser_delete(&parser);
    return value;
}
