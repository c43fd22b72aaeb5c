#include "estimate/pattern/model.h"

#include <stdlib.h>
#include <string.h>

static int compare(const pp_model *a, const pp_model *b)
{
    int by = strcmp(a->name, b->name);
    by = by ? by : strcmp(a->digest, b->digest);
    return by ? by : strcmp(a->batch, b->batch);
}

static void done(pp_model *model)
{
    free(model->name);
    free(model->digest);
    free(model->batch);
}

static char *copy(const char *text)
{
    return strdup(text ? text : "");
}

/* Takes the model. */
static int insert(pp_models *models, pp_model *model)
{
    size_t at = 0;
    while (at < models->n && compare(&models->items[at], model) < 0)
        at++;
    if (at < models->n && compare(&models->items[at], model) == 0) {
        done(model);
        return 0;
    }
    pp_model *items = realloc(models->items, (models->n + 1) * sizeof *items);
    if (!items)
        return -1;
    memmove(&items[at + 1], &items[at], (models->n - at) * sizeof *items);
    items[at] = *model;
    models->items = items;
    models->n++;
    return 0;
}

int pp_models_add(pp_models *models, const char *name, const char *digest, const char *batch,
                  pp_error *err)
{
    pp_model model = {copy(name), copy(digest), copy(batch)};
    if (model.name && model.digest && model.batch && insert(models, &model) == 0)
        return 0;
    done(&model);
    return pp_error_nomem(err);
}

int pp_models_add_all(pp_models *models, const pp_models *from, pp_error *err)
{
    for (size_t i = 0; i < from->n; i++)
        if (pp_models_add(models, from->items[i].name, from->items[i].digest, from->items[i].batch,
                          err) < 0)
            return -1;
    return 0;
}

bool pp_models_equal(const pp_models *a, const pp_models *b)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (compare(&a->items[i], &b->items[i]) != 0)
            return false;
    return true;
}

void pp_models_done(pp_models *models)
{
    for (size_t i = 0; i < models->n; i++)
        done(&models->items[i]);
    free(models->items);
    *models = (pp_models){0};
}
