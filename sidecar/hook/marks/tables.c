/*
 * Where the hook's hooks are installed: torch's tables of them. While any region is open
 * (regions.c) none of ours is there.
 */
#include "sidecar/hook/hook.h"

/* A hook of ours in one of torch's tables; all references owned. */
typedef struct entry {
    PyObject *table, *key, *hook;
    pp_kind kind;
    bool away; /* taken out while compiled code runs */
} entry;

enum { ENTRIES = 32 };

static entry entries[ENTRIES];
static int entry_count;
static int hidden; /* regions open, in all threads */

static bool take_out(const entry *e)
{
    if (PyObject_DelItem(e->table, e->key) == 0)
        return true;
    PyErr_Clear(); /* the user has cleared the table */
    return false;
}

int pp_hooks_add(PyObject *table, PyObject *key, pp_kind kind, PyObject *hook)
{
    bool away = hidden > 0;
    if (entry_count == ENTRIES) {
        PyErr_SetString(PyExc_OverflowError, "too many hooks");
        return -1;
    }
    if (!away && PyObject_SetItem(table, key, hook) < 0)
        return -1;
    Py_INCREF(hook);
    Py_INCREF(table);
    Py_INCREF(key);
    entries[entry_count++] = (entry){table, key, hook, kind, away};
    return 0;
}

void pp_hooks_remove(PyObject *key)
{
    for (int i = entry_count - 1; i >= 0; i--) {
        entry e = entries[i];
        if (e.key != key)
            continue;
        entries[i] = entries[--entry_count];
        if (!e.away)
            (void)take_out(&e);
        Py_DECREF(e.table);
        Py_DECREF(e.key);
        Py_DECREF(e.hook);
    }
}

bool pp_hooks_has(pp_kind kind)
{
    for (int i = 0; i < entry_count; i++)
        if (entries[i].kind == kind)
            return true;
    return false;
}

/* torch iterates the optimizers' tables as they are, at a step: where others' hooks are there too,
 * one of those may be what runs now, before ours or behind. */
static bool may_change(const entry *e)
{
    bool optimizer = e->kind == OPTIMIZER_BEGIN || e->kind == OPTIMIZER_END;
    return !optimizer || PyObject_Size(e->table) == 1;
}

void pp_hooks_hide(void)
{
    if (hidden++ > 0)
        return;
    for (int i = 0; i < entry_count; i++)
        if (may_change(&entries[i]))
            entries[i].away = take_out(&entries[i]);
}

/* With an exception set or without; it stays. */
void pp_hooks_show(void)
{
    if (--hidden > 0)
        return;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    for (int i = 0; i < entry_count; i++) {
        entry *e = &entries[i];
        if (e->away && PyObject_SetItem(e->table, e->key, e->hook) < 0)
            PyErr_Clear();
        e->away = false;
    }
    PyErr_Restore(type, value, trace);
}

PyObject *pp_hooks_without(PyObject *function)
{
    pp_hooks_hide();
    PyObject *result = PyObject_CallFunctionObjArgs(function, NULL);
    pp_hooks_show();
    return result;
}
