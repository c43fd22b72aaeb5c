/* Texts that are held once, so that equal ones have one address. */
#ifndef PP_CLI_RUN_TEXTS_H
#define PP_CLI_RUN_TEXTS_H

#include "common/error.h"

typedef struct pp_texts {
    void *tree;
} pp_texts;

void pp_texts_done(pp_texts *texts);

/** The one copy of a text; NULL where there is none. */
const char *pp_texts_find(const pp_texts *texts, const char *text);

/** The same, made where it is missing; NULL with an error. */
const char *pp_texts_hold(pp_texts *texts, const char *text, pp_error *err);

#endif
