#include "operator/state/memory.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    LARGE = 128 << 10, /* bytes of a block: glibc's own threshold, which otherwise grows with what
                          is freed, up to 32 MiB */
};

/* Resident bytes beside what is in use: free ones, which the next burst may well need, and the
 * programs' own. */
#define A_LOT ((size_t)28 << 20)

void pp_memory_configure(void)
{
#ifdef __GLIBC__
    (void)mallopt(M_MMAP_THRESHOLD, LARGE);
#endif
}

#ifdef __GLIBC__
/* Bytes; 0 where it cannot be known. The file's second number, in pages. */
static size_t resident(void)
{
    char line[128] = "";
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file)
        return 0;
    const char *second = fgets(line, sizeof line, file) ? strchr(line, ' ') : NULL;
    (void)fclose(file);
    return second ? strtoul(second, NULL, 10) * (size_t)sysconf(_SC_PAGESIZE) : 0;
}
#endif

void pp_memory_trim(void)
{
#ifdef __GLIBC__
    const struct mallinfo2 info = mallinfo2();
    if (resident() > info.uordblks + info.hblkhd + A_LOT)
        (void)malloc_trim(A_LOT / 2);
#endif
}
