/*
 * CUPTI's records of copies and fills: CUpti_ActivityMemcpy and its successors to 6, those of
 * copies between GPUs to PtoP4, and CUpti_ActivityMemset to 4 keep the fields read here in their
 * places.
 */
#include "sidecar/hook/hook.h"
#include "sidecar/hook/kernels/kernels_internal.h"

#include <string.h>

enum {
    AT_COPY_KIND = 4, /* a byte each */
    AT_FROM = 5,
    AT_TO = 6,
    AT_BYTES = 8,
    AT_START = 16,
    AT_END = 24,
    AT_DEVICE = 32,
    AT_CORRELATION = 44,
    AT_CORRELATION_OF_PEERS = 60,
    /* CUpti_ActivityMemcpyKind; between them those of arrays. */
    HOST_TO_HOST = 9,
    /* CUpti_ActivityMemoryKind. */
    PAGEABLE = 1,
    PINNED = 2,
};

/* By CUpti_ActivityMemcpyKind. */
static const uint8_t types[] = {PP_COPY_OTHER, PP_COPY_H2D,   PP_COPY_D2H, PP_COPY_H2D,
                                PP_COPY_D2H,   PP_COPY_D2D,   PP_COPY_D2D, PP_COPY_D2D,
                                PP_COPY_D2D,   PP_COPY_OTHER, PP_COPY_P2P};

static pp_copy_memory memory_of(const uint8_t *r, pp_copy_type type)
{
    const uint8_t kind = type == PP_COPY_H2D ? r[AT_FROM] : type == PP_COPY_D2H ? r[AT_TO] : 0;
    return kind == PAGEABLE ? PP_COPY_PAGEABLE : kind == PINNED ? PP_COPY_PINNED : PP_COPY_UNKNOWN;
}

bool pp_copy_read(const uint8_t *r, int kind, pp_kernel *ret, uint32_t *ret_correlation)
{
    uint32_t device;
    const uint8_t of = r[AT_COPY_KIND];
    pp_copy_type type = kind == PP_CUPTI_MEMSET ? PP_COPY_FILL
                        : of < sizeof types     ? (pp_copy_type)types[of]
                                                : PP_COPY_OTHER;
    int64_t end;
    *ret = (pp_kernel){0};
    memcpy(&ret->bytes, r + AT_BYTES, sizeof ret->bytes);
    memcpy(&ret->start, r + AT_START, sizeof ret->start);
    memcpy(&end, r + AT_END, sizeof end);
    memcpy(ret_correlation,
           r + (kind == PP_CUPTI_MEMCPY_PEERS ? AT_CORRELATION_OF_PEERS : AT_CORRELATION),
           sizeof *ret_correlation);
    memcpy(&device, r + AT_DEVICE, sizeof device);
    if (ret->start <= 0 || end < ret->start || device >= PP_RING_DEVICES ||
        (kind != PP_CUPTI_MEMSET && of == HOST_TO_HOST))
        return false;
    ret->flags = PP_KERNEL_COPY | (uint32_t)type << PP_KERNEL_COPY_SHIFT |
                 (uint32_t)memory_of(r, type) << PP_KERNEL_MEMORY_SHIFT |
                 device << PP_KERNEL_DEVICE_SHIFT;
    pp_kernel_set_duration(ret, end - ret->start);
    return true;
}
