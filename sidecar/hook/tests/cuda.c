/*
 * A double of libcuda.so.1 for the tests of the hook: events are times of the host clock, and what
 * fails is said by pp_cuda_fault() or, from the beginning, by PP_CUDA_FAULT in the environment; of
 * several, one behind the other:
 *
 *   create record query elapsed context capturing calibrate   that call fails
 *   uuid      the driver does not tell which GPUs these are
 *   busy      the stream is being captured into a graph
 *   never     no event is reached
 *   garbage   elapsed times are no times: NaN, infinite, huge
 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OK = 0, OUT_OF_MEMORY = 2, NOT_READY = 600, UNKNOWN = 999 };
enum { DEVICES = 2, FIRST_DEVICE = 100 };

typedef struct event {
    int64_t at; /* ns */
} event;

static char fault[32];

void pp_cuda_fault(const char *name);
void pp_cuda_fault(const char *name)
{
    (void)snprintf(fault, sizeof fault, "%s", name);
}

__attribute__((constructor)) static void begin(void)
{
    const char *name = getenv("PP_CUDA_FAULT");
    pp_cuda_fault(name ? name : "");
}

static bool fails(const char *name)
{
    return strstr(fault, name) != NULL;
}

static int64_t now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int cuEventCreate(event **ret, unsigned flags);
int cuEventCreate(event **ret, unsigned flags)
{
    (void)flags;
    *ret = fails("create") ? NULL : calloc(1, sizeof **ret);
    return *ret ? OK : OUT_OF_MEMORY;
}

int cuEventRecord(event *e, void *stream);
int cuEventRecord(event *e, void *stream)
{
    (void)stream;
    e->at = now();
    return fails("record") ? UNKNOWN : OK;
}

int cuEventQuery(event *e);
int cuEventQuery(event *e)
{
    if (fails("query") || e->at == 0)
        return UNKNOWN;
    return fails("never") ? NOT_READY : OK;
}

int cuEventElapsedTime(float *ret_ms, event *begun, event *ended);
int cuEventElapsedTime(float *ret_ms, event *begun, event *ended)
{
    static const float garbage[] = {NAN, INFINITY, -INFINITY, 3e38F, -1e30F};
    static unsigned turn;
    if (fails("elapsed"))
        return UNKNOWN;
    *ret_ms = (float)((double)(ended->at - begun->at) / 1e6);
    if (fails("garbage"))
        *ret_ms = garbage[turn++ % (sizeof garbage / sizeof *garbage)];
    return OK;
}

int cuCtxGetCurrent(void **ret);
int cuCtxGetCurrent(void **ret)
{
    *ret = fails("context") ? NULL : &fault;
    return fails("context") ? UNKNOWN : OK;
}

int cuCtxSetCurrent(void *context);
int cuCtxSetCurrent(void *context)
{
    (void)context;
    return fails("context") ? UNKNOWN : OK;
}

int cuCtxGetDevice(int *ret);
int cuCtxGetDevice(int *ret)
{
    *ret = 0;
    return OK;
}

/* Weak ones are others' in the virtual GPU (e2e/gpu/driver). */
#define WEAK __attribute__((weak))

WEAK int cuDeviceGetCount(int *ret);
int cuDeviceGetCount(int *ret)
{
    *ret = DEVICES;
    return OK;
}

/* A device is not its number. */
WEAK int cuDeviceGet(int *ret, int number);
int cuDeviceGet(int *ret, int number)
{
    *ret = FIRST_DEVICE + number;
    return number < DEVICES ? OK : UNKNOWN;
}

/* They differ in the last digit. */
WEAK int cuDeviceGetUuid(unsigned char ret[16], int device);
int cuDeviceGetUuid(unsigned char ret[16], int device)
{
    static const unsigned char first[] = {0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77,
                                          0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff};
    const int number = device - FIRST_DEVICE;
    if (number < 0 || number >= DEVICES || fails("uuid"))
        return UNKNOWN;
    memcpy(ret, first, sizeof first);
    ret[15] = number == 0 ? 0xff : 0xf0;
    return OK;
}

int cuDeviceGetName(char *ret, int size, int device);
int cuDeviceGetName(char *ret, int size, int device)
{
    (void)snprintf(ret, (size_t)size, "NVIDIA H200");
    return device >= FIRST_DEVICE ? OK : UNKNOWN;
}

/* An H200's, by CUdevice_attribute. */
int cuDeviceGetAttribute(int *ret, int attribute, int device);
int cuDeviceGetAttribute(int *ret, int attribute, int device)
{
    static const struct {
        int attribute, value;
    } chip[] = {{13, 1980000}, {16, 132}, {36, 3201000}, {37, 6144}, {75, 9}, {76, 0}};
    for (size_t i = 0; i < sizeof chip / sizeof *chip; i++) {
        if (chip[i].attribute == attribute && device >= FIRST_DEVICE) {
            *ret = chip[i].value;
            return OK;
        }
    }
    return UNKNOWN;
}

int cuStreamCreate(void **ret, unsigned flags);
int cuStreamCreate(void **ret, unsigned flags)
{
    (void)flags;
    *ret = &fault;
    return fails("calibrate") ? OUT_OF_MEMORY : OK;
}

int cuStreamIsCapturing(void *stream, int *ret);
int cuStreamIsCapturing(void *stream, int *ret)
{
    (void)stream;
    *ret = fails("busy");
    return fails("capturing") ? UNKNOWN : OK;
}

#ifndef PP_CUDA_OLD
int cuThreadExchangeStreamCaptureMode(int *mode);
int cuThreadExchangeStreamCaptureMode(int *mode)
{
    (void)mode;
    return OK;
}
#endif
