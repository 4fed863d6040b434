/* The loop: waits for the network, the engine, the preparation and signals, and moves jobs along. */
#ifndef SERVE_LOOP_H
#define SERVE_LOOP_H

#include "serve/server.h"

/* Makes the descriptors that the loop waits for: epoll_fd, engine_fd and signal_fd. SIGTERM and SIGINT must be
 * blocked in every thread. */
bool sv_loop_open(struct sv_server *s, struct sennit_error *err);
void sv_loop_close(struct sv_server *s);
/* For struct sennit_engine_options: wakes the loop. ctx: the server. */
void sv_loop_notify(void *ctx);
/* Until a signal, or a failed engine with --exit-on-failure, has ended the server and all jobs are gone. Returns the
 * exit code. */
int sv_loop_run(struct sv_server *s);

#endif
