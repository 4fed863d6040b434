/* bench/probe: where two CPUs lie relative to each other, by a ping-pong over two cache lines.
 *
 *     probe [CPU CPU]        default 0 1; prints {"cpus":[0,1],"rtt_ns":103.4,"mode":"near"}
 *
 * A virtual machine's CPUs may be two threads of one core, two cores that share a cache, or two
 * cores far apart, and the host may move them at any time. A two-thread figure means nothing
 * without this, and two figures compare only when both were taken in one mode. The limits below fit
 * the machines seen so far; the round trip itself is printed, so that others can be judged. Takes
 * about 20 ms. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 10000, REPEATS = 7, SMT_BELOW_NS = 75, NEAR_BELOW_NS = 250 };

/* One line per direction, far enough apart that the adjacent-line prefetcher does not join them. */
static struct {
    _Alignas(256) atomic_long value;
} lines[2];

struct player {
    int cpu, id;
    double best_ns; /* of player 0: per round trip, the fastest repeat */
    int error;
};

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int pin(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    return pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

static void round_trip(int id, long i)
{
    if (id == 0)
        atomic_store_explicit(&lines[0].value, i, memory_order_release);
    while (atomic_load_explicit(&lines[1 - id].value, memory_order_acquire) < i)
        ;
    if (id == 1)
        atomic_store_explicit(&lines[1].value, i, memory_order_release);
}

static void *play(void *arg)
{
    struct player *p = arg;
    p->best_ns = 1e12;
    /* A player that could not be pinned still plays, or the other would wait for ever. */
    p->error = pin(p->cpu);
    for (long repeat = 0; repeat < REPEATS; repeat++) {
        double start = now_ns();
        for (long i = 1; i <= ROUNDS; i++)
            round_trip(p->id, repeat * ROUNDS + i);
        double ns = (now_ns() - start) / ROUNDS;
        p->best_ns = ns < p->best_ns ? ns : p->best_ns;
    }
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 1 && argc != 3) {
        fprintf(stderr, "usage: probe [CPU CPU]\n");
        return 2;
    }
    struct player players[2] = {{.cpu = argc == 3 ? atoi(argv[1]) : 0, .id = 0},
                                {.cpu = argc == 3 ? atoi(argv[2]) : 1, .id = 1}};
    if (players[0].cpu < 0 || players[1].cpu < 0 || players[0].cpu == players[1].cpu) {
        fprintf(stderr, "probe: give two different CPU numbers\n");
        return 2;
    }
    pthread_t other;
    if (pthread_create(&other, NULL, play, &players[1]) != 0) {
        fprintf(stderr, "probe: cannot start a thread\n");
        return 1;
    }
    play(&players[0]);
    pthread_join(other, NULL);
    if (players[0].error != 0 || players[1].error != 0) {
        fprintf(stderr, "probe: cannot run on CPUs %d and %d\n", players[0].cpu, players[1].cpu);
        return 1;
    }
    double rtt = players[0].best_ns;
    printf("{\"cpus\":[%d,%d],\"rtt_ns\":%.1f,\"mode\":\"%s\"}\n", players[0].cpu, players[1].cpu,
           rtt,
           rtt < SMT_BELOW_NS    ? "smt"
           : rtt < NEAR_BELOW_NS ? "near"
                                 : "far");
    return 0;
}
