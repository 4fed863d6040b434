/* What the server counts, as Prometheus text (exposition format 0.0.4). All calls from the server's loop thread. */
#ifndef SERVE_METRICS_H
#define SERVE_METRICS_H

#include "serve/answer.h"

struct sv_metrics; /* opaque */
struct sv_metrics *sv_metrics_create(void); /* NULL without memory */
void sv_metrics_free(struct sv_metrics *m);

/* Why a request was refused or did not end well; one label value each. */
enum sv_refusal {
    SV_REFUSED_BAD_REQUEST, SV_REFUSED_AUTH, SV_REFUSED_NOT_FOUND, SV_REFUSED_TOO_LARGE, SV_REFUSED_CONTEXT,
    SV_REFUSED_BUDGET, SV_REFUSED_QUEUE_FULL, SV_REFUSED_SHUTDOWN, SV_REFUSED_ENGINE, SV_REFUSED_MEMORY,
    SV_REFUSED_COUNT
};
void sv_metrics_refused(struct sv_metrics *m, enum sv_refusal why);
void sv_metrics_http(struct sv_metrics *m, int status);   /* one response begun */
void sv_metrics_hangup(struct sv_metrics *m);             /* a client left before its answer was whole */
/* Seconds, per request: body read to first token; body read to the last byte given; between tokens (mean of one
 * choice); body read to admission. */
void sv_metrics_first_token(struct sv_metrics *m, double s);
void sv_metrics_request(struct sv_metrics *m, double s, struct sv_usage usage);
void sv_metrics_per_token(struct sv_metrics *m, double s);
void sv_metrics_queue(struct sv_metrics *m, double s);
/* Gauges that the loop knows. */
struct sv_gauges {
    uint32_t n_connections, n_jobs, n_streams;
    uint64_t body_bytes, body_limit; /* buffered now */
    bool healthy;
};
void sv_metrics_write(const struct sv_metrics *m, const struct sennit_load *load, const struct sv_gauges *gauges,
                      struct sv_buf *out);

#endif
