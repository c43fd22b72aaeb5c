/* Scope-bound release of resources through the compiler's cleanup attribute (gcc, clang). */
#ifndef PP_COMMON_CLEANUP_H
#define PP_COMMON_CLEANUP_H

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void pp_cleanup_free(void *p)
{
    free(*(void **)p);
}

static inline void pp_cleanup_fd(const int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

static inline void pp_cleanup_json(json_t **j)
{
    json_decref(*j);
}

static inline void pp_cleanup_file(FILE **f)
{
    if (*f)
        (void)fclose(*f);
}

/** Memory from malloc and friends, freed at the end of the scope. */
#define PP_CLEANUP_FREE __attribute__((cleanup(pp_cleanup_free)))
/** A file descriptor; must be initialised, -1 when there is none. */
#define PP_CLEANUP_FD __attribute__((cleanup(pp_cleanup_fd)))
/** An owned json_t reference; must be initialised. */
#define PP_CLEANUP_JSON __attribute__((cleanup(pp_cleanup_json)))
/** An open FILE; must be initialised. */
#define PP_CLEANUP_FILE __attribute__((cleanup(pp_cleanup_file)))

/** Hands the pointer over to the caller: yields its value and leaves NULL behind. */
#define PP_TAKE(p)                                                                                 \
    ({                                                                                             \
        __typeof__(p) pp_taken = (p);                                                              \
        (p) = NULL;                                                                                \
        pp_taken;                                                                                  \
    })

#endif
