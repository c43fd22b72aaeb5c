#include "sidecar/agent/settings.h"

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/file.h"
#include "common/wire.h"
#include "sidecar/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    TEXT_MAX = 256 << 10,
    LONGEST_S = 600,
    TIMELINE = 8,
    TIMELINE_MAX = 1000,
    DWELL_MOST = 60000,
    PAUSE = 60000,
    PAUSE_MOST = 3600000,
    MEMORY_MIB = 2048,
    MEMORY_MOST = 1 << 20,
    PM_LEAST = 20000,
    PM_MOST = 1000000
};

#define SECONDS_MAX (30 * 86400.0)

#define AT(member) offsetof(pp_settings, member)

static const pp_json_field top_fields[] = {
    {"version", PP_JSON_INT, AT(version), true, 0},
    {"endpoint", PP_JSON_STRING, AT(endpoint), false, 1024},
    {"addresses", PP_JSON_STRINGS, AT(addresses), false, PP_WIRE_MAX_ADDRESSES},
    {"phases", PP_JSON_STRINGS, AT(phases), false, 8},
    {"durationSeconds", PP_JSON_NUMBER, AT(duration), false, 0},
    {"overheadBudgetPercent", PP_JSON_NUMBER, AT(budget_percent), false, 0},
    {NULL, PP_JSON_VALUE, 0, false, 0},
};

static const pp_json_field session_fields[] = {
    {"uid", PP_JSON_STRING, AT(session), true, 64},
    {"namespace", PP_JSON_STRING, AT(namespace_), true, 253},
    {"name", PP_JSON_STRING, AT(name), true, 253},
    {NULL, PP_JSON_VALUE, 0, false, 0},
};

static const pp_json_field layer_fields[] = {
    {"include", PP_JSON_STRINGS, AT(include), false, 1000},
    {"exclude", PP_JSON_STRINGS, AT(exclude), false, 1000},
    {"types", PP_JSON_STRINGS, AT(types), false, 1000},
    {"depth", PP_JSON_INT, AT(depth), false, 1000},
    {NULL, PP_JSON_VALUE, 0, false, 0},
};

static const pp_json_field step_fields[] = {
    {"skip", PP_JSON_INT, AT(skip), false, 0},
    {"max", PP_JSON_INT, AT(max), false, 0},
    {NULL, PP_JSON_VALUE, 0, false, 0},
};

static const pp_json_field capture_fields[] = {
    {"seconds", PP_JSON_NUMBER, AT(capture), false, 0},
    {NULL, PP_JSON_VALUE, 0, false, 0},
};

static const pp_json_field timeline_fields[] = {
    {"steps", PP_JSON_INT, AT(timeline), false, TIMELINE_MAX},
    {NULL, PP_JSON_VALUE, 0, false, 0},
};

static const pp_json_field pm_fields[] = {
    {"periodNs", PP_JSON_INT, AT(sampling_period), false, 0},
    {NULL, PP_JSON_VALUE, 0, false, 0},
};

static const pp_json_field isolation_fields[] = {
    {"dwellMs", PP_JSON_INT, AT(dwell_ms), false, 0},
    {"maxPauseMs", PP_JSON_INT, AT(pause_ms), false, 0},
    {"memoryMiB", PP_JSON_INT, AT(memory_mib), false, 0},
    {NULL, PP_JSON_VALUE, 0, false, 0},
};

static const pp_json_field events_fields[] = {
    {"port", PP_JSON_INT, AT(events_port), false, 65535},
    {NULL, PP_JSON_VALUE, 0, false, 0},
};

/* Parts of the file, each decoded into the one struct. Unknown keys are for newer agents. */
static const struct {
    const char *key; /* NULL: the file itself */
    const pp_json_field *fields;
    bool required;
} parts[] = {
    {NULL, top_fields, true},
    {"session", session_fields, false},
    {"layers", layer_fields, false},
    {"steps", step_fields, false},
    {"stretch", capture_fields, false},
    {"timeline", timeline_fields, false},
    {"events", events_fields, false},
    {"fine", pm_fields, false},
    {"isolation", isolation_fields, false},
};

static int in_range(double value, double least, double most, const char *field, pp_error *err)
{
    if (!isfinite(value) || value < least || value > most)
        return pp_error_field(err, field, "must be %g to %g", least, most);
    return 0;
}

static int check_isolation(const pp_settings *s, pp_error *err)
{
    if (s->dwell_ms < 0 || s->dwell_ms > DWELL_MOST)
        return pp_error_field(err, "isolation.dwellMs", "must be 0 to %d", DWELL_MOST);
    if (s->pause_ms < 1 || s->pause_ms > PAUSE_MOST)
        return pp_error_field(err, "isolation.maxPauseMs", "must be 1 to %d", PAUSE_MOST);
    if (s->memory_mib < 1 || s->memory_mib > MEMORY_MOST)
        return pp_error_field(err, "isolation.memoryMiB", "must be 1 to %d", MEMORY_MOST);
    return 0;
}

static int check_addresses(const pp_strings *addresses, pp_error *err)
{
    for (size_t i = 0; i < addresses->count; i++) {
        if (!pp_wire_is_address(addresses->items[i]))
            return pp_error_field(err, "addresses", "must be literal IP addresses");
    }
    return 0;
}

static int check(const pp_settings *s, pp_error *err)
{
    static const char *const known[] = {"Forward", "Backward", "Optimizer"};
    if (s->version != 1)
        return pp_error_field(err, "version", "must be 1");
    if (s->events_port < 0)
        return pp_error_field(err, "events.port", "must not be negative");
    if (check_addresses(&s->addresses, err) < 0)
        return -1;
    if (!s->session)
        return 0; /* an idle pod's: there is nothing to do yet */
    if (!pp_wire_is_id(s->session, PP_WIRE_MAX_ID))
        return pp_error_field(err, "session.uid", "is no id");
    if (in_range(s->duration, 0, SECONDS_MAX, "durationSeconds", err) < 0 ||
        in_range(s->budget_percent, 0.001, 100, "overheadBudgetPercent", err) < 0 ||
        in_range(s->capture, 0.001, SECONDS_MAX, "stretch.seconds", err) < 0)
        return -1;
    if (s->depth < 0 || s->skip < 0 || s->max < 0)
        return pp_error_field(err, "steps", "numbers must not be negative");
    if (s->sampling_period != 0 && (s->sampling_period < PM_LEAST || s->sampling_period > PM_MOST))
        return pp_error_field(err, "fine.periodNs", "must be 0, or %d to %d", PM_LEAST, PM_MOST);
    if (s->timeline < 0)
        return pp_error_field(err, "timeline.steps", "must not be negative");
    if (check_isolation(s, err) < 0)
        return -1;
    for (size_t i = 0; i < s->phases.count; i++) {
        bool found = false;
        for (size_t k = 0; k < sizeof known / sizeof *known; k++)
            found = found || strcmp(s->phases.items[i], known[k]) == 0;
        if (!found)
            return pp_error_field(err, "phases", "must be Forward, Backward or Optimizer, not %s",
                                  s->phases.items[i]);
    }
    return 0;
}

int pp_settings_decode(const json_t *root, pp_settings *ret, pp_error *err)
{
    *ret = (pp_settings){.timeline = TIMELINE, .pause_ms = PAUSE, .memory_mib = MEMORY_MIB};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const char *key = parts[i].key;
        const json_t *object = key ? json_object_get(root, key) : root;
        if (!object && parts[i].required)
            return pp_error_field(err, key, "is required");
        if (object && !json_is_null(object) &&
            pp_json_decode(object, parts[i].fields, false, key ? key : "", ret, err) < 0)
            return -1;
    }
    return check(ret, err);
}

int pp_settings_parse(const char *text, size_t n, pp_settings *ret, pp_error *err)
{
    *ret = (pp_settings){0};
    PP_CLEANUP_JSON json_t *root = pp_json_parse(text, n, err);
    return root ? pp_settings_decode(root, ret, err) : -1;
}

int pp_settings_read(const char *path, pp_settings *ret, pp_error *err)
{
    memset(ret, 0, sizeof *ret);
    size_t n = 0;
    PP_CLEANUP_FREE char *text = pp_file_read(path, TEXT_MAX, &n, err);
    if (!text)
        return -1;
    return pp_settings_parse(text, n, ret, err) < 0 ? pp_error_prefix(err, "%s", path) : 0;
}

void pp_settings_free(pp_settings *s)
{
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        pp_json_free_fields(parts[i].fields, s);
}

uint32_t pp_settings_number(const pp_settings *s)
{
    uint32_t hash = 2166136261U; /* FNV-1a */
    for (const char *c = s->session; c && *c; c++)
        hash = (hash ^ (unsigned char)*c) * 16777619U;
    return s->session ? hash : 0;
}

pp_schedule_policy pp_settings_policy(const pp_settings *s)
{
    return (pp_schedule_policy){.capture = (int64_t)(s->capture * 1e9),
                                .longest = (int64_t)LONGEST_S * 1000000000,
                                .budget = s->budget_percent / 100,
                                .duration = (int64_t)(s->duration * 1e9),
                                .skip = s->skip,
                                .max = s->max};
}

static json_t *strings(const pp_strings *from)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < from->count; i++)
        (void)json_array_append_new(list, json_string(from->items[i]));
    return list;
}

/* Readable by every user: the trainer often is another one than the agent. What else the user's
 * processes may have put there, a link or a pipe, is neither followed nor waited for. */
static int write_file(const char *path, const char *text, pp_error *err)
{
    PP_CLEANUP_FD int fd =
        open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd < 0)
        return pp_error_errno(err, "opening %s", path);
    if (write(fd, text, strlen(text)) != (ssize_t)strlen(text) || fchmod(fd, 0644) < 0)
        return pp_error_errno(err, "writing %s", path);
    return 0;
}

/* In one piece: whoever reads it finds the old text or the new one. */
static int replace_file(const char *directory, const char *name, const json_t *root, pp_error *err)
{
    char path[PATH_MAX];
    char fresh[PATH_MAX];
    uint64_t id = 0;
    if (getrandom(&id, sizeof id, 0) != (ssize_t)sizeof id)
        return pp_error_errno(err, "random numbers");
    int n = snprintf(path, sizeof path, "%s/%s", directory, name);
    int m = snprintf(fresh, sizeof fresh, "%s/" PP_RING_UNNAMED "%016" PRIx64, directory, id);
    if (n < 0 || (size_t)n >= sizeof path || m < 0 || (size_t)m >= sizeof fresh)
        return pp_error_set(err, PP_ERR_TOO_LARGE, "the directory's name is too long");
    PP_CLEANUP_FREE char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
    if (!text)
        return pp_error_nomem(err);
    int rc = write_file(fresh, text, err);
    if (rc == 0 && rename(fresh, path) < 0)
        rc = pp_error_errno(err, "writing %s", path);
    if (rc < 0)
        (void)unlink(fresh);
    return rc;
}

int pp_settings_keep(const json_t *root, const char *directory, pp_error *err)
{
    return replace_file(directory, PP_SETTINGS_KEPT, root, err);
}

int pp_settings_read_kept(const char *directory, pp_settings *ret, pp_error *err)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/" PP_SETTINGS_KEPT, directory);
    *ret = (pp_settings){0};
    if (n < 0 || (size_t)n >= sizeof path)
        return pp_error_set(err, PP_ERR_TOO_LARGE, "the directory's name is too long");
    return pp_settings_read(path, ret, err);
}

int pp_settings_control(const pp_settings *s, const char *directory, const char *mode,
                        pp_error *err)
{
    PP_CLEANUP_JSON json_t *root = json_pack(
        "{s:i, s:s, s:I, s:{s:o, s:o, s:o, s:I}, s:o, s:{s:I}, s:{s:I, s:I, s:I}}", "version", 1,
        "mode", mode, "session", (json_int_t)pp_settings_number(s), "layers", "include",
        strings(&s->include), "exclude", strings(&s->exclude), "types", strings(&s->types), "depth",
        (json_int_t)s->depth, "phases", strings(&s->phases), "fine", "periodNs",
        (json_int_t)s->sampling_period, "isolation", "dwellMs", (json_int_t)s->dwell_ms,
        "maxPauseMs", (json_int_t)s->pause_ms, "memoryMiB", (json_int_t)s->memory_mib);
    return replace_file(directory, PP_RING_CONTROL, root, err);
}
