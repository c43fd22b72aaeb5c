/*
 * What the GPU of this process is, as the driver that torch has brought in tells it: looked up, not
 * measured, and without a call that waits for the GPU.
 */
#include "hook.h"

#include <dlfcn.h>
#include <string.h>

/* CUdevice_attribute of cuda.h */
enum {
    ATTRIBUTE_CLOCK = 13,
    ATTRIBUTE_MULTIPROCESSORS = 16,
    ATTRIBUTE_MEMORY_CLOCK = 36,
    ATTRIBUTE_MEMORY_BITS = 37,
    ATTRIBUTE_MAJOR = 75,
    ATTRIBUTE_MINOR = 76,
};

static int (*get_attribute)(int *, int, int);

static int attribute(int which, int device)
{
    int value = 0;
    return get_attribute(&value, which, device) == 0 && value > 0 ? value : 0;
}

void pp_chip_describe(pp_ring_header *header)
{
    int (*get_device)(int *) = NULL;
    int device = 0;
    header->capability = header->multiprocessors = 0;
    header->sm_khz = header->memory_khz = header->memory_bits = 0;
    /* Of a part of a GPU the driver tells some of the part and some of the whole. */
    if (strncmp(header->gpus, "GPU-", 4) != 0 || strchr(header->gpus, ','))
        return;
    void *library = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
    if (!library)
        return;
    void *of_device = dlsym(library, "cuDeviceGetAttribute");
    void *of_context = dlsym(library, "cuCtxGetDevice");
    memcpy(&get_attribute, &of_device, sizeof of_device);
    memcpy(&get_device, &of_context, sizeof of_context);
    if (get_attribute && get_device && get_device(&device) == 0) {
        header->capability =
            10 * attribute(ATTRIBUTE_MAJOR, device) + attribute(ATTRIBUTE_MINOR, device);
        header->multiprocessors = attribute(ATTRIBUTE_MULTIPROCESSORS, device);
        header->sm_khz = attribute(ATTRIBUTE_CLOCK, device);
        header->memory_khz = attribute(ATTRIBUTE_MEMORY_CLOCK, device);
        header->memory_bits = attribute(ATTRIBUTE_MEMORY_BITS, device);
    }
    (void)dlclose(library);
}
