/* An asynchronous device that does what the clock must find out.
 *
 * Its time is simulated, so that tests are exact and quick on any machine: `host` is the time of the program that gives
 * orders, and `end` is when the device has done all orders so far. `noise` is how much longer an order may take, in
 * millionths. */
#include <stdint.h>
#include <stdlib.h>

enum { WAITS_EARLY = 1, WAITS_NOT, MERGES_PAIRS, MERGES_ALL, BLOCKS, HOISTS, OVERLAPS };
enum { CALL, EMPTY, ADD, LOOP };
#define IN_FLIGHT 32
#define ORDER_NS 150
#define WAIT_NS 4000
#define FETCH_NS 9000

struct device {
    double host, end;
    double ends[IN_FLIGHT]; /* of the last orders, in turn */
    int64_t call_ns, empty_ns, given, value, noise;
    int64_t gap_ns; /* what each order takes besides its work */
    int64_t row; /* how many orders the device has had without a pause */
    int fault, in_pair;
    uint64_t random;
};

struct device *device_open(int64_t call_ns, int64_t empty_ns, int64_t fault, int64_t noise, int64_t gap_ns)
{
    struct device *d = calloc(1, sizeof *d);
    d->call_ns = call_ns;
    d->empty_ns = empty_ns;
    d->fault = (int)fault;
    d->noise = noise;
    d->gap_ns = gap_ns;
    d->random = 1;
    return d;
}

void device_close(struct device *d) { free(d); }

int64_t device_now(struct device *d) { return (int64_t)d->host; }

static double noisy(struct device *d, double ns)
{
    d->random = d->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return ns * (1 + 1e-6 * (double)d->noise * (double)(d->random >> 40) / (1 << 24));
}

static void order(struct device *d, int64_t kind, int64_t turns)
{
    d->host += ORDER_NS;
    if (d->fault == BLOCKS && d->host < d->ends[d->given % IN_FLIGHT])
        d->host = d->ends[d->given % IN_FLIGHT];
    int waits = d->host < d->end; /* in the queue */
    d->row = waits ? d->row + 1 : 0;
    double ns = (double)(kind == EMPTY ? d->empty_ns : d->call_ns);
    if (kind == LOOP && d->fault != HOISTS)
        ns *= (double)turns;
    int is_merged = (d->fault == MERGES_PAIRS && d->row % 2) || (d->fault == MERGES_ALL && d->row);
    int is_beside = d->fault == OVERLAPS && waits && !d->in_pair;
    d->in_pair = is_beside;
    if (kind == ADD && !is_merged)
        d->value++;
    if (!is_merged && !is_beside)
        d->end = (waits ? d->end : d->host) + noisy(d, ns + (double)d->gap_ns);
    d->ends[d->given++ % IN_FLIGHT] = d->end;
}

/* Give `calls` orders; `kind` is CALL, EMPTY, ADD or LOOP of so many turns. */
int64_t device_enqueue(struct device *d, int64_t kind, int64_t calls, int64_t turns)
{
    for (int64_t i = 0; i < calls; i++)
        order(d, kind, turns);
    return 0;
}

int64_t device_wait(struct device *d)
{
    double end = d->end;
    if (d->fault == WAITS_NOT)
        end = d->host;
    if (d->fault == WAITS_EARLY) /* when half of what was left is done */
        end = d->host + (d->end - d->host) / 2;
    d->host = noisy(d, WAIT_NS) + (end > d->host ? end : d->host);
    return 0;
}

/* The sum of all ADD orders, when everything is done. */
int64_t device_fetch(struct device *d)
{
    d->host = noisy(d, FETCH_NS) + (d->end > d->host ? d->end : d->host);
    return d->value;
}
