/* NCCL of the fake GPUs: ranks are processes that add in shared memory. */
#include "fake.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST_RANKS = 8, MOST_BYTES = 1 << 22, FLOAT16 = 6, FLOAT32 = 7, BFLOAT16 = 9, INVALID = 4 };

struct id { char text[128]; };
struct shared {
    pthread_barrier_t barrier;
    volatile int ready, joined;
    char data[MOST_RANKS][MOST_BYTES];
};
/* If one process has all GPUs, `shared` is NULL. */
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
int ncclCommInitRank(void **created, int ranks, struct id id, int rank)
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
        s->ready = 1;
    }
    while (!s->ready)
        usleep(100);
    __sync_fetch_and_add(&s->joined, 1);
    while (s->joined < ranks)
        usleep(100);
    if (rank == 0)
        shm_unlink(id.text);
    struct communicator c = {s, rank, ranks};
    *created = memcpy(malloc(sizeof c), &c, sizeof c);
    return 0;
}

int ncclCommInitAll(void **created, int count, const int *devices)
{
    MAY_FAIL();
    for (int i = 0; i < count; i++) {
        struct communicator c = {NULL, i, count};
        created[i] = memcpy(malloc(sizeof c), &c, sizeof c);
    }
    return count > MOST_RANKS ? INVALID : 0;
}
struct local { int count; struct reduction r[MOST_RANKS]; };
static struct local open_local;
static void reduce_all(void *arguments)
{
    struct local *l = arguments;
    for (size_t i = 0; i < l->r[0].count; i++) {
        float sum = 0;
        for (int k = 0; k < l->count; k++)
            sum += (float)get(l->r[k].from, i, l->r[k].type);
        for (int k = 0; k < l->count; k++)
            put(l->r[k].to, i, l->r[k].type, sum);
    }
}

static void reduce(void *arguments)
{
    struct reduction *r = arguments;
    struct communicator *c = r->c;
    size_t width = r->type == R_32F ? 4 : 2;
    memcpy(c->shared->data[c->rank], r->from, r->count * width);
    pthread_barrier_wait(&c->shared->barrier);
    /* FAKE_CCL_ORDER: every rank starts adding with its own data, so that results differ. */
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
/* Receives part r of the data of the others, all of their data, or that of the root. */
enum kind { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST };
struct movement { struct communicator *c; const void *from; void *to; size_t count; int type; enum kind kind; };

static void move(void *arguments)
{
    struct movement *m = arguments;
    struct communicator *c = m->c;
    size_t width = m->type == R_32F ? 4 : 2, sent = m->count * (m->kind == REDUCE_SCATTER ? c->ranks : 1);
    if (m->kind != BROADCAST || c->rank == 0)
        memcpy(c->shared->data[c->rank], m->from, sent * width);
    pthread_barrier_wait(&c->shared->barrier);
    if (m->kind == ALL_GATHER)
        for (int r = 0; r < c->ranks; r++)
            memcpy((char *)m->to + r * m->count * width, c->shared->data[r], m->count * width);
    else if (m->kind == BROADCAST)
        memcpy(m->to, c->shared->data[0], m->count * width);
    else
        for (size_t i = 0; i < m->count; i++) {
            float sum = 0;
            for (int r = 0; r < c->ranks; r++)
                sum += (float)get(c->shared->data[r], c->rank * m->count + i, m->type);
            put(m->to, i, m->type, sum);
        }
    pthread_barrier_wait(&c->shared->barrier);
    spin(slowness());
}
static int type_of(int type) { return type == FLOAT32 ? R_32F : type == FLOAT16 ? R_16F : type == BFLOAT16 ? R_16BF : -1; }
static int submit_movement(const void *from, void *to, size_t count, int type, struct communicator *c, enum kind kind)
{
    struct movement m = {c, from, to, count, type_of(type), kind};
    if (m.type < 0 || count * 4 * c->ranks > MOST_BYTES)
        return INVALID;
    submit(move, &m, sizeof m);
    return 0;
}
int ncclReduceScatter(const void *from, void *to, size_t count, int type, int op, struct communicator *c, void *stream)
{
    return op ? INVALID : submit_movement(from, to, count, type, c, REDUCE_SCATTER);
}
int ncclAllGather(const void *from, void *to, size_t count, int type, struct communicator *c, void *stream)
{
    return submit_movement(from, to, count, type, c, ALL_GATHER);
}
int ncclBroadcast(const void *from, void *to, size_t count, int type, int root, struct communicator *c, void *stream)
{
    return root ? INVALID : submit_movement(from, to, count, type, c, BROADCAST);
}

/* Messages of a group are exchanged when it ends. Each rank's outbox has one slot per peer. */
struct message { const void *from; void *to; size_t bytes; int peer; };
static struct box { struct communicator *c; int count; struct message messages[2 * MOST_RANKS]; } open_box;
static int open_group;

static void exchange(void *arguments)
{
    struct box *b = arguments;
    struct communicator *c = b->c;
    size_t place = MOST_BYTES / MOST_RANKS;
    for (int i = 0; i < b->count; i++)
        if (b->messages[i].from)
            memcpy(c->shared->data[c->rank] + b->messages[i].peer * place, b->messages[i].from, b->messages[i].bytes);
    pthread_barrier_wait(&c->shared->barrier);
    for (int i = 0; i < b->count; i++)
        if (b->messages[i].to)
            memcpy(b->messages[i].to, c->shared->data[b->messages[i].peer] + c->rank * place, b->messages[i].bytes);
    pthread_barrier_wait(&c->shared->barrier);
}
int ncclGroupStart(void)
{
    open_group = 1, open_box.count = open_local.count = 0;
    return 0;
}
int ncclGroupEnd(void)
{
    MAY_FAIL();
    if (open_local.count) {
        if (open_local.count != open_local.r[0].c->ranks)
            return INVALID;
        submit(reduce_all, &open_local, sizeof open_local);
    } else
        submit(exchange, &open_box, sizeof open_box);
    open_group = 0;
    return 0;
}
static int message(const void *from, void *to, size_t count, int type, int peer, struct communicator *c)
{
    size_t bytes = count * (type == FLOAT32 ? 4 : 2);
    if (!open_group || open_box.count == 2 * MOST_RANKS || bytes > MOST_BYTES / MOST_RANKS)
        return INVALID;
    open_box.c = c;
    open_box.messages[open_box.count++] = (struct message){from, to, bytes, peer};
    return 0;
}
int ncclSend(const void *from, size_t count, int type, int peer, struct communicator *c, void *stream)
{
    return message(from, NULL, count, type, peer, c);
}
int ncclRecv(void *to, size_t count, int type, int peer, struct communicator *c, void *stream)
{
    return message(NULL, to, count, type, peer, c);
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
    if (!c->shared) {
        if (!open_group)
            return INVALID;
        open_local.r[open_local.count++] = r;
        return 0;
    }
    submit(reduce, &r, sizeof r);
    return 0;
}
