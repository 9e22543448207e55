/* Executions of a PJRT program in a row, and the wait for the last one.
 *
 * The interface is OpenXLA's PJRT C API. Every function takes one block of arguments that begins with its size, and
 * returns an error object, or NULL for success. Loaded with ctypes. */
#include <stdint.h>
#include <stdlib.h>

typedef void *(*function)(void *);

/* The argument of the functions that take one object: bytes, extension, object, and room for later versions. */
struct one {
    uint64_t size;
    void *extension, *object;
    uint64_t room[16];
};

/* The beginning of the arguments of PJRT_LoadedExecutable_Execute. */
struct execute {
    uint64_t size;
    void *extension, *executable, *options;
    void ***arguments;
    uint64_t devices, count;
    void ***outputs;
    void **events;
    void *device;
};

struct chain {
    function execute, await, event_destroy, buffer_destroy;
    struct execute *call;
    const int64_t *donated; /* which argument each output replaces */
    int64_t outputs;
    void *event; /* of the last execution, NULL if it was awaited */
    void **old;  /* buffers that were replaced: destroying one may block until the execution is done */
    int64_t count, capacity;
};

static void *destroy(struct chain *c, function f, void *object)
{
    struct one a = {sizeof a, NULL, object, {0}};
    (void)c;
    return f(&a);
}

void *deepbench_pjrt_rest(struct chain *c)
{
    void *error = NULL;
    while (c->count && !error)
        error = destroy(c, c->buffer_destroy, c->old[--c->count]);
    return error;
}

/* The output of each execution is an argument of the next, so none can begin before the one before has ended. */
void *deepbench_pjrt_enqueue(struct chain *c, int64_t calls)
{
    void **arguments = c->call->arguments[0], **outputs = c->call->outputs[0], *error;
    for (int64_t i = 0; i < calls; i++) {
        int last = i == calls - 1;
        if (last && c->event && (error = destroy(c, c->event_destroy, c->event)))
            return error;
        if (last)
            c->event = NULL;
        c->call->events = last ? &c->event : NULL;
        if ((error = c->execute(c->call)))
            return error;
        if (c->count + c->outputs > c->capacity) {
            int64_t more = 2 * c->capacity + 1024;
            void **room = realloc(c->old, (size_t)more * sizeof *room);
            if (!room) {
                if ((error = deepbench_pjrt_rest(c)))
                    return error;
            } else {
                c->old = room;
                c->capacity = more;
            }
        }
        for (int64_t j = 0; j < c->outputs; j++) {
            c->old[c->count++] = arguments[c->donated[j]];
            arguments[c->donated[j]] = outputs[j];
        }
    }
    return NULL;
}

void *deepbench_pjrt_wait(struct chain *c)
{
    struct one a = {sizeof a, NULL, c->event, {0}};
    if (!c->event)
        return NULL;
    void *error = c->await(&a);
    c->event = NULL;
    if (error)
        return error;
    return c->event_destroy(&a);
}
