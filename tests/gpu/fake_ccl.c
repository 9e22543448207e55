/* NCCL of the make-believe GPUs: ranks are processes that add in shared memory. */
#include "fake.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST_RANKS = 8, MOST_BYTES = 1 << 22, FLOAT16 = 6, FLOAT32 = 7, BFLOAT16 = 9, INVALID = 4 };

struct id { char text[128]; };
struct shared {
    pthread_barrier_t barrier;
    volatile int made, joined;
    char data[MOST_RANKS][MOST_BYTES];
};
struct communicator { struct shared *shared; int rank, ranks; };
struct reduction { struct communicator *c; const void *from; void *to; size_t count; int type; };

int ncclGetVersion(int *version) { *version = 22809; return 0; }
const char *ncclGetErrorString(int status) { return status == INVALID ? "invalid argument" : "an error of the fake"; }
int ncclGetUniqueId(struct id *id)
{
    memset(id, 0, sizeof *id);
    snprintf(id->text, sizeof id->text, "/deepbench-fake-%d", getpid());
    shm_unlink(id->text);
    return fails(__func__);
}
int ncclCommInitRank(void **made, int ranks, struct id id, int rank)
{
    MAY_FAIL();
    int file = shm_open(id.text, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ranks > MOST_RANKS || ftruncate(file, sizeof(struct shared)))
        return 2;
    struct shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (rank == 0) {
        pthread_barrierattr_t attributes;
        pthread_barrierattr_init(&attributes);
        pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
        pthread_barrier_init(&s->barrier, &attributes, ranks);
        __sync_synchronize();
        s->made = 1;
    }
    while (!s->made)
        usleep(100);
    __sync_fetch_and_add(&s->joined, 1);
    while (s->joined < ranks)
        usleep(100);
    if (rank == 0)
        shm_unlink(id.text);
    struct communicator c = {s, rank, ranks};
    *made = memcpy(malloc(sizeof c), &c, sizeof c);
    return 0;
}

static void reduce(void *arguments)
{
    struct reduction *r = arguments;
    struct communicator *c = r->c;
    size_t width = r->type == R_32F ? 4 : 2;
    memcpy(c->shared->data[c->rank], r->from, r->count * width);
    pthread_barrier_wait(&c->shared->barrier);
    /* FAKE_CCL_ORDER: every rank adds from itself on, so that they disagree. */
    int first = getenv("FAKE_CCL_ORDER") ? c->rank : 0;
    for (size_t i = 0; i < r->count; i++) {
        float sum = (float)get(c->shared->data[first], i, r->type);
        for (int k = 1; k < c->ranks; k++)
            sum += (float)get(c->shared->data[(first + k) % c->ranks], i, r->type);
        put(r->to, i, r->type, sum);
    }
    pthread_barrier_wait(&c->shared->barrier);
    spin(slowness());
}
int ncclAllReduce(const void *from, void *to, size_t count, int type, int op, struct communicator *c, void *stream)
{
    MAY_FAIL();
    int kind = type == FLOAT32 ? R_32F : type == FLOAT16 ? R_16F : type == BFLOAT16 ? R_16BF : -1;
    if (op || kind < 0 || count * 4 > MOST_BYTES)
        return INVALID;
    const char *algorithm = getenv("NCCL_ALGO");
    if (count > 1)
        logged("all-reduce rank %d of %d type %d in place %d algorithm %s", c->rank, c->ranks, type, from == to,
            algorithm ? algorithm : "default");
    struct reduction r = {c, from, to, count, kind};
    submit(reduce, &r, sizeof r);
    return 0;
}
