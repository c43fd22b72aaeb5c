#include "operator/memory.h"

#include <malloc.h>
#include <stdio.h>
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
/* Bytes; 0 where it cannot be known. */
static size_t resident(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file)
        return 0;
    if (fscanf(file, "%*u %lu", &pages) != 1)
        pages = 0;
    (void)fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
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
