/* The preparation thread: takes jobs first in, first out, turns their bodies into requests of the engine, and hands
 * them back. Nothing here touches a connection. */
#ifndef SERVE_PREPARE_H
#define SERVE_PREPARE_H

#include "serve/job.h"

/* NULL with *err. facts: borrowed for the thread's life. */
struct sv_prepare *sv_prepare_start(const struct sv_facts *facts, struct sennit_error *err);
/* Ends the thread after the job it is at; the others stay in the lists. */
void sv_prepare_stop(struct sv_prepare *p);
void sv_prepare_free(struct sv_prepare *p); /* stops; NULL is fine */
/* Readable while jobs can be taken. */
int sv_prepare_fd(const struct sv_prepare *p);
void sv_prepare_push(struct sv_prepare *p, struct sv_job *job);
/* All jobs that are done, linked by `queued`, oldest first; after sv_prepare_stop those that never began too. */
struct sv_job *sv_prepare_take(struct sv_prepare *p);

/* One job, on the caller's thread: fills answer and choices, or sets the error. */
void sv_prepare_job(const struct sv_facts *facts, struct sv_job *job);

#endif
