/*
 * Which GPUs this process has and what they are, by their numbers in CUDA, as the driver that torch
 * has brought in tells it: looked up, not measured, and without a call that waits for a GPU.
 */
#include "sidecar/hook/hook.h"

#include <dlfcn.h>
#include <stdio.h>
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

enum { UUID = 16, NAME = 128 };

static struct {
    int (*count)(int *);
    int (*device)(int *, int); /* by its number, by which CUPTI calls it */
    int (*attribute)(int *, int, int);
    int (*uuid)(unsigned char[UUID], int); /* NULL before CUDA 9.2; of a part of a GPU from 11.4 */
    int (*name)(char *, int, int);
} cu;

static int attribute(int which, int device)
{
    int value = 0;
    return cu.attribute(&value, which, device) == 0 && value > 0 ? value : 0;
}

/* Of a model, which is added where there is room; 0: there is none. What stands there stays: the
 * agent may be reading it. */
static int number_of(pp_ring_header *header, const char *model)
{
    char text[PP_RING_TYPE];
    pp_copy_text(text, sizeof text, model);
    for (int i = 0; i < PP_RING_MODELS && *text; i++) {
        if (!header->gpu_models[i][0])
            pp_copy_text(header->gpu_models[i], sizeof header->gpu_models[i], text);
        if (strcmp(header->gpu_models[i], text) == 0)
            return i + 1;
    }
    return 0;
}

/* As NVML has them. */
static void identify(pp_ring_header *header, pp_ring_device *to, int device)
{
    unsigned char u[UUID];
    char name[NAME] = "";
    if (!cu.uuid || !cu.name || cu.uuid(u, device) != 0 || cu.name(name, NAME, device) != 0)
        return;
    to->model = number_of(header, name);
    int n = snprintf(to->uuid, sizeof to->uuid, "%s-", strstr(name, " MIG ") ? "MIG" : "GPU");
    for (int i = 0; i < UUID; i++)
        n += snprintf(to->uuid + n, sizeof to->uuid - (size_t)n, "%s%02x",
                      i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", u[i]);
}

static void describe(pp_ring_header *header, pp_ring_device *to, int number)
{
    int device;
    memset(to, 0, sizeof *to);
    if (cu.device(&device, number) != 0)
        return;
    identify(header, to, device);
    /* Of a part of a GPU the driver tells some of the part and some of the whole. */
    if (strncmp(to->uuid, "GPU-", 4) != 0)
        return;
    to->capability = 10 * attribute(ATTRIBUTE_MAJOR, device) + attribute(ATTRIBUTE_MINOR, device);
    to->multiprocessors = attribute(ATTRIBUTE_MULTIPROCESSORS, device);
    to->sm_khz = attribute(ATTRIBUTE_CLOCK, device);
    to->memory_khz = attribute(ATTRIBUTE_MEMORY_CLOCK, device);
    to->memory_bits = attribute(ATTRIBUTE_MEMORY_BITS, device);
}

void pp_chip_describe(pp_ring_header *header)
{
    int devices = 0;
    void *library = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
    if (!library)
        return;
    void *count = dlsym(library, "cuDeviceGetCount");
    void *device = dlsym(library, "cuDeviceGet");
    void *of_device = dlsym(library, "cuDeviceGetAttribute");
    void *uuid = dlsym(library, "cuDeviceGetUuid_v2");
    void *name = dlsym(library, "cuDeviceGetName");
    if (!uuid)
        uuid = dlsym(library, "cuDeviceGetUuid");
    memcpy(&cu.count, &count, sizeof count);
    memcpy(&cu.device, &device, sizeof device);
    memcpy(&cu.attribute, &of_device, sizeof of_device);
    memcpy(&cu.uuid, &uuid, sizeof uuid);
    memcpy(&cu.name, &name, sizeof name);
    if (count && device && of_device && cu.count(&devices) == 0)
        for (int i = 0; i < devices && i < PP_RING_DEVICES; i++) {
            pp_ring_device now;
            describe(header, &now, i);
            /* The agent may be reading what is there already. */
            if (memcmp(&now, &header->devices[i], sizeof now) != 0)
                header->devices[i] = now;
        }
    (void)dlclose(library);
}
