/* The shared libraries that the process has loaded already: the hook loads none of its own. */
#include "sidecar/hook/hook.h"

#include <limits.h>
#include <link.h>
#include <string.h>

typedef struct wish {
    const char *name;
    char *path;
} wish;

static int look(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)size;
    const wish *w = user;
    const char *name = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
    if (!name || strncmp(name + 1, w->name, strlen(w->name)) != 0)
        return 0;
    pp_copy_text(w->path, PATH_MAX, info->dlpi_name);
    return 1;
}

bool pp_find_library(const char *name, char *path)
{
    wish w = {name, path};
    return dl_iterate_phdr(look, &w) != 0;
}
