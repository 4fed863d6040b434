/* A real `sennit serve` for a test: started on a port that the kernel chooses, stopped with SIGTERM.
 *
 * All servers of a test program share one folder under the temporary directory, removed at its end. When the program
 * fails, what the servers wrote to standard error is shown, and servers that still run are killed. Checks are those
 * of engine/run.h and end the program, from any thread. */
#ifndef SERVE_SERVER_FIXTURE_H
#define SERVE_SERVER_FIXTURE_H

#include <sys/types.h>

#include "engine/run.h"
#include "support/http.h"
#include "support/tiny_model.h"

/* Under a sanitizer everything is slower: limits of time are multiplied, amounts of work divided, by these. */
#if defined(__SANITIZE_THREAD__)
enum { SLOW = 15, LESS = 6 };
#elif defined(__SANITIZE_ADDRESS__)
enum { SLOW = 8, LESS = 4 };
#else
enum { SLOW = 1, LESS = 1 };
#endif

struct server {
    pid_t pid; /* 0 = not running */
    uint16_t port;
    bool tls; /* --tls-cert was among the arguments */
    int number;
};

/* What most tests ask: two layers, a vocabulary of bytes and a context of `context` tokens. */
const char *server_tiny_model(uint32_t context);
/* A file name in the program's folder, valid until the end. */
const char *server_file(const char *name);

/* Arguments after "serve -m MODEL --port 0 --port-file FILE", ended by NULL. Returns when it answers /health
 * (with TLS: when it listens). */
void server_start(struct server *s, const char *model, ...) __attribute__((sentinel));
/* Starts one that is expected not to serve; what it said is in *log (freed by the caller). Returns the exit code, or
 * -1 when it went on running for 20 s (and was killed). */
int server_try(const char *model, char **log, ...) __attribute__((sentinel));
/* SIGTERM; waits for the end, which must be exit code 0 within the grace. */
void server_stop(struct server *s);
/* The exit code when it ends by itself within the time; -1 otherwise (128 + n by signal n). */
int server_wait_exit(struct server *s, int timeout_ms);
/* Another program, found in PATH: its exit code (127: not there), and what it wrote in *out (freed by the caller). */
int server_run(const char *const *args, char **out);
char *server_log(const struct server *s); /* standard error until now; freed by the caller */

/* A metric without labels, or with exactly these: "name" or "name{label=\"x\"}". Ends the program when
 * there is none. */
double server_metric(const struct server *s, const char *name);
/* What a server holds. Idle: nothing but the connection and the job that ask for this. */
struct server_gauges {
    double rows, waiting, cache_bytes, cache_reserved, jobs, connections, resident_bytes;
};
struct server_gauges server_gauges(const struct server *s);
/* Waits until it holds nothing any more (no more than `idle` holds); false after the time. */
bool server_wait_idle(const struct server *s, int timeout_ms);
/* Waits until rows == running and waiting == waiting; false after the time. */
bool server_wait_rows(const struct server *s, uint32_t running, uint32_t waiting, int timeout_ms);

void sleep_ms(uint32_t ms);

/* One test of a program that has several: skipped when argv[1] is given and names another. */
#define RUN_TEST(name)                                                                                               \
    do {                                                                                                             \
        if (argc < 2 || strcmp(argv[1], #name) == 0) {                                                               \
            double run_from_ = http_now();                                                                           \
            printf("%-32s ", #name);                                                                                 \
            fflush(stdout);                                                                                          \
            name();                                                                                                  \
            printf("ok, %.1f s\n", http_now() - run_from_);                                                          \
        }                                                                                                            \
    } while (0)

#endif
