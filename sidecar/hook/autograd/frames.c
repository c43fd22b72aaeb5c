/*
 * The forwards that are open in a thread, the innermost last, and of parents what was called in
 * them.
 */
#include "sidecar/hook/hook.h"

#include <stdlib.h>

enum {
    FRAMES = 64,
    PARTS_MAX =
        1024, /* a forward that calls more, a rollout, may let go of their graph meanwhile */
};

static _Thread_local pp_frame frames[FRAMES];
static _Thread_local int count;

const void *pp_frames_thread(void)
{
    return &count;
}

int pp_frames_count(void)
{
    return count;
}

const pp_frame *pp_frames_at(int i)
{
    return &frames[i];
}

static void drop_parts(pp_frame *frame)
{
    pp_part *parts = frame->parts;
    const size_t n = frame->part_count;
    frame->parts = NULL;
    frame->part_count = frame->part_room = 0;
    for (size_t i = 0; i < n; i++)
        Py_DECREF(parts[i].exits);
    free(parts);
}

void pp_frame_done(pp_frame *frame)
{
    pp_frame gone = *frame; /* freeing runs others' code, which may come here */
    *frame = (pp_frame){0};
    Py_XDECREF(gone.edge);
    drop_parts(&gone);
}

void pp_frames_clear(int keep)
{
    while (count > keep) {
        pp_frame gone = frames[--count];
        frames[count] = (pp_frame){0};
        pp_frame_done(&gone);
    }
}

pp_frame *pp_frames_push(uint32_t layer, uint8_t phase, bool parent, PyObject *edge)
{
    if (count == FRAMES)
        pp_frames_clear(0);
    pp_frame *f = &frames[count++];
    *f = (pp_frame){.layer = layer, .phase = phase, .parent = parent, .edge = edge};
    return f;
}

static pp_frame *find(uint32_t layer)
{
    int at = count;
    while (at > 0 && frames[at - 1].layer != layer)
        at--;
    return at > 0 ? &frames[at - 1] : NULL;
}

bool pp_frames_call_again(uint32_t layer)
{
    pp_frame *f = find(layer);
    if (f)
        f->calls++;
    return f != NULL;
}

bool pp_frames_return(uint32_t layer)
{
    pp_frame *f = find(layer);
    if (!f || f->calls == 0)
        return false;
    f->calls--;
    return true;
}

bool pp_frames_pop(uint32_t layer, pp_frame *ret)
{
    const pp_frame *f = find(layer);
    if (!f)
        return false;
    pp_frames_clear((int)(f - frames) + 1);
    *ret = frames[--count];
    frames[count] = (pp_frame){0};
    return true;
}

pp_frame *pp_frames_parent(void)
{
    pp_frame *f = count > 0 ? &frames[count - 1] : NULL;
    return f && f->parent && f->edge ? f : NULL;
}

int pp_frame_add(pp_frame *frame, int64_t from, int64_t to, PyObject *exits)
{
    if (frame->too_many || frame->part_count == PARTS_MAX) {
        drop_parts(frame);
        frame->too_many = true;
        Py_DECREF(exits);
        return 0;
    }
    if (frame->part_count == frame->part_room) {
        size_t room = frame->part_room ? 2 * frame->part_room : 8;
        pp_part *parts = realloc(frame->parts, room * sizeof *parts);
        if (!parts) {
            Py_DECREF(exits);
            (void)PyErr_NoMemory();
            return -1;
        }
        frame->parts = parts;
        frame->part_room = room;
    }
    frame->parts[frame->part_count++] = (pp_part){from, to, exits};
    return 0;
}
