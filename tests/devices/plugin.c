/* Make-believe plug-ins of PJRT that are wrong in the way that FAULT says. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NOTHING = 1, OLD, NEW, OTHER_FIELDS, ABORTS, HANGS, CONTROL };

struct table { size_t size; void *extension; size_t v_size; void *v_extension; int major, minor; void *functions[138]; };
struct error_message { size_t size; void *extension, *error; const char *text; size_t length; };

static void *refuse(void *arguments)
{
    (void)arguments;
    if (FAULT == ABORTS)
        abort();
    if (FAULT == HANGS)
        for (;;)
            pause();
    return FAULT == CONTROL || FAULT == OTHER_FIELDS ? (void *)1 : NULL;
}

static void *text(void *arguments)
{
    struct error_message *m = arguments;
    m->text = FAULT == CONTROL ? "\x1b[2J\x1b]0;title\a<script>expected 9" : "expected 4096, got 8";
    m->length = strlen(m->text);
    return NULL;
}

static void *nothing(void *arguments)
{
    (void)arguments;
    return NULL;
}

void *GetPjrtApi(void)
{
    static struct table t;
    if (FAULT == NOTHING)
        return NULL;
    t.size = FAULT == OLD ? 100 : sizeof t;
    t.major = FAULT == NEW;
    t.minor = 115;
    for (int i = 0; i < 138; i++)
        t.functions[i] = (void *)refuse;
    t.functions[0] = (void *)nothing;
    t.functions[1] = (void *)text;
    return &t;
}
